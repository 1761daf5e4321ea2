"""A source that screens each message before the application receives it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from _pulsar import MessageBuilder

from pulsar_ext.receive.filter import ScreenedSource


def built(number):
    builder = MessageBuilder()
    builder.content(b"%d" % number)
    return builder.build()


@pytest.mark.parametrize(("harmless", "expected"), [(-1, [0, 1, 2, 3]), (0, [])])
def test_harmless_messages_are_not_screened(harmless, expected):
    """Messages keep their order, and those with a low redelivery count are not screened."""
    screened = []

    def screen(message):
        screened.append(int(message.data()))
        return True

    source = SimpleNamespace(each=iter([built(number) for number in range(4)]), wait=None)
    found = ScreenedSource(source, screen, harmless=harmless)
    assert [int(message.data()) for message in found] == [0, 1, 2, 3]
    assert screened == expected


def test_messages_screened_ahead_come_first():
    """A harmless message does not overtake one that was screened earlier."""
    ahead = iter([built(0)])
    source = SimpleNamespace(each=iter([built(1)]), wait=lambda _: next(ahead))
    found = ScreenedSource(source, lambda _: True, harmless=0)
    found.screen_ahead()
    assert [int(message.data()) for message in found] == [0, 1]
