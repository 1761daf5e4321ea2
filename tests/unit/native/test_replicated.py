"""Reading where a message was replicated from, out of the official library: an own message came from nowhere."""

import _pulsar
import pytest

from pulsar_ext._native import replicated
from pulsar_ext.errors import InvalidUse


def test_a_message_made_here_came_from_no_cluster():
    """The library reads a message as it lies in memory and finds no cluster; an empty one has none either."""
    builder = _pulsar.MessageBuilder()
    builder.content(b"x")
    assert replicated.replicated_from(builder.build()) is None
    assert replicated.replicated_from(_pulsar.Message()) is None


def test_another_layout_is_refused(monkeypatch):
    """Where a message of known content is not read back, no message is asked, and the admin API is named instead."""
    replicated._known_function.cache_clear()
    monkeypatch.setattr(replicated, "_ask", lambda *_: "something else")
    with pytest.raises(InvalidUse, match=r"lays its objects out in another way.*PulsarAdmin\.entry"):
        replicated.replicated_from(_pulsar.Message())
    replicated._known_function.cache_clear()
