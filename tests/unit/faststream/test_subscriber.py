"""What becomes of a message whose handler settles it by an exception."""

from __future__ import annotations

import asyncio

import pytest
from faststream.exceptions import AckMessage, NackMessage, RejectMessage, SkipMessage

from pulsar_ext.faststream.subscriber import Settling


@pytest.mark.parametrize(
    ("error", "is_manual", "expected"),
    [
        (AckMessage, True, ["ack"]),
        (NackMessage, True, ["nack"]),
        (RejectMessage, True, ["reject"]),
        (SkipMessage, True, []),
        (SkipMessage, False, ["ack"]),
        (NackMessage, False, []),
        (ValueError, True, []),
    ],
)
def test_an_exception_settles_its_message(error, is_manual, expected):
    """Without a policy as it says; with one, a skipped message is acknowledged and the policy does the rest."""
    calls = []

    class Message:
        async def ack(self):
            calls.append("ack")

        async def nack(self):
            calls.append("nack")

        async def reject(self):
            calls.append("reject")

    async def call_next(message):
        return message

    async def handle():
        settling = Settling(None, context=None, is_manual=is_manual, log=pytest.fail)
        await settling.consume_scope(call_next, Message())
        return await settling.after_processed(error, error(), None)

    assert asyncio.run(handle()) is (is_manual and error is not ValueError)
    assert calls == expected
