"""Negative acknowledgements during `redeliver_unacknowledged_messages()`."""

from __future__ import annotations

import threading

import pulsar_ext as pulsar
from pulsar_ext.redelivery.tracker import Redelivery


def test_nack_during_redelivery_is_kept(client, topic, monkeypatch):
    """A message negatively acknowledged before `redeliver_unacknowledged_messages()` returns is redelivered."""
    consumer = client.subscribe(
        topic,
        "s",
        pulsar.ConsumerType.Shared,
        negative_ack_redelivery_delay_ms=1_000,
        dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(5, f"{topic}-dead"),
    )
    client.create_producer(topic).send(b"x")
    consumer.receive(10_000)
    on_after, nacked = Redelivery.on_after, []

    def nack_one() -> None:
        nacked.append(consumer.receive(5_000))
        consumer.negative_acknowledge(nacked[-1])

    def nack_first(self, transition):
        if not nacked:
            thread = threading.Thread(target=nack_one)
            thread.start()
            thread.join()
        on_after(self, transition)

    monkeypatch.setattr(Redelivery, "on_after", nack_first)
    consumer.redeliver_unacknowledged_messages()
    assert nacked
    assert consumer.receive(10_000).redelivery_count() == 2
