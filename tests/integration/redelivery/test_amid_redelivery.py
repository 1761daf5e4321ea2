"""What is refused while everything is asked for again."""

from __future__ import annotations

import threading

import pulsar_ext as pulsar
from pulsar_ext.redelivery.tracker import Redelivery


def test_what_comes_again_and_is_refused_meanwhile_is_not_lost(client, topic, monkeypatch):
    """A message that came again before `redeliver_unacknowledged_messages()` ended, and was refused, comes again."""
    consumer = client.subscribe(
        topic,
        "s",
        pulsar.ConsumerType.Shared,
        negative_ack_redelivery_delay_ms=1_000,
        dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(5, f"{topic}-dead"),
    )
    client.create_producer(topic).send(b"x")
    consumer.receive(10_000)
    after, refused = Redelivery.after, []

    def refuse() -> None:
        refused.append(consumer.receive(5_000))
        consumer.negative_acknowledge(refused[-1])

    def refuse_first(self, transition):
        if not refused:
            refusing = threading.Thread(target=refuse)
            refusing.start()
            refusing.join()
        after(self, transition)

    monkeypatch.setattr(Redelivery, "after", refuse_first)
    consumer.redeliver_unacknowledged_messages()
    assert refused
    assert consumer.receive(10_000).redelivery_count() == 2
