"""A message that was not replicated has no origin cluster."""

import _pulsar

from pulsar_ext._native import replicated


def test_unreplicated_message_has_no_origin():
    """The library reads no origin cluster from a message built here, nor from an empty one."""
    builder = _pulsar.MessageBuilder()
    builder.content(b"x")
    assert replicated.replicated_from(builder.build()) is None
    assert replicated.replicated_from(_pulsar.Message()) is None
