"""Reading where a message was replicated from, out of the official library: an own message came from nowhere."""

import _pulsar

from pulsar_ext._native import replicated


def test_a_message_made_here_came_from_no_cluster():
    """The library reads a message as it lies in memory and finds no cluster; an empty one has none either."""
    builder = _pulsar.MessageBuilder()
    builder.content(b"x")
    assert replicated.replicated_from(builder.build()) is None
    assert replicated.replicated_from(_pulsar.Message()) is None
