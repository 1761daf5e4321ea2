"""A source that looks at each message before the application gets it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from _pulsar import MessageBuilder

from pulsar_ext.receive.filter import ScreenedSource


def built(number):
    builder = MessageBuilder()
    builder.content(b"%d" % number)
    return builder.build()


@pytest.mark.parametrize(("harmless", "looks"), [(-1, [0, 1, 2, 3]), (0, [])])
def test_harmless_messages_pass_unseen(harmless, looks):
    """Messages come in their order, and those that were not redelivered too often are not looked at."""
    looked = []

    def screen(message):
        looked.append(int(message.data()))
        return True

    source = SimpleNamespace(each=iter([built(number) for number in range(4)]), wait=None)
    found = ScreenedSource(source, screen, harmless=harmless)
    assert [int(message.data()) for message in found] == [0, 1, 2, 3]
    assert looked == looks


def test_what_was_looked_at_ahead_comes_first():
    """A harmless message does not pass one that was looked at before it came."""
    ahead = iter([built(0)])
    source = SimpleNamespace(each=iter([built(1)]), wait=lambda _: next(ahead))
    found = ScreenedSource(source, lambda _: True, harmless=0)
    found.look_ahead()
    assert [int(message.data()) for message in found] == [0, 1]
