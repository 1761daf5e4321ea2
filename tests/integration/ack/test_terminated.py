"""Acknowledgements on a topic that was terminated.

The broker answers each with news of the topic's end, which the C++ client does not know: it drops the connection.
"""

from __future__ import annotations

import pytest
from acked import send_plain
from chunked import drain, eventually

import pulsar_ext as pulsar


@pytest.mark.parametrize("type_", [pulsar.ConsumerType.Exclusive, pulsar.ConsumerType.Shared])
@pytest.mark.parametrize("when", ["before", "behind"])
def test_the_connection_comes_to_rest(client, admin, topic, type_, when):
    """What was acknowledged before or behind the end is not sent again for ever: the connection is kept at last."""
    consumer = client.subscribe(topic, "s", type_, initial_position=pulsar.InitialPosition.Earliest)
    send_plain(client, topic, 10)
    messages = drain(consumer.receive, 10)
    if when == "behind":
        admin.terminate(topic)
    for message in messages:
        consumer.acknowledge(message)
    if when == "before":
        admin.terminate(topic)

    def rests():
        before = admin.stats(topic).subscriptions["s"].sessions
        eventually(lambda: False, 4.0)  # longer than what is sent again takes
        return bool(before) and admin.stats(topic).subscriptions["s"].sessions == before

    assert eventually(rests, 30)
    assert admin.stats(topic, precise_backlog=True).subscriptions["s"].backlog_entries == 0
