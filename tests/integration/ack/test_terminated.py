"""Acknowledgements on a terminated topic.

The broker answers each with the end of the topic. The C++ client does not know this command, and closes the
connection.
"""

from __future__ import annotations

import pytest
from acked import send_plain
from chunked import drain, eventually

import pulsar_ext as pulsar


@pytest.mark.parametrize("type_", [pulsar.ConsumerType.Exclusive, pulsar.ConsumerType.Shared])
@pytest.mark.parametrize("when", ["before", "after"])
def test_connection_becomes_stable_after_termination(client, admin, topic, type_, when):
    """Acknowledgements before or after the termination are not resent forever: the connection becomes stable."""
    consumer = client.subscribe(topic, "s", type_, initial_position=pulsar.InitialPosition.Earliest)
    send_plain(client, topic, 10)
    messages = drain(consumer.receive, 10)
    if when == "after":
        admin.terminate(topic)
    for message in messages:
        consumer.acknowledge(message)
    if when == "before":
        admin.terminate(topic)

    def is_stable():
        before = admin.stats(topic).subscriptions["s"].sessions
        eventually(lambda: False, 4.0)  # longer than resending takes
        return bool(before) and admin.stats(topic).subscriptions["s"].sessions == before

    assert eventually(is_stable, 30)
    assert admin.stats(topic, precise_backlog=True).subscriptions["s"].backlog_entries == 0
