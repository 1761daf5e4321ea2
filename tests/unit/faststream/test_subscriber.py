"""Acknowledgement of messages by the exceptions of their handlers."""

from __future__ import annotations

import asyncio

import pytest
from faststream.exceptions import AckMessage, NackMessage, RejectMessage, SkipMessage

from pulsar_ext.faststream.subscriber import ExceptionAcknowledger


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
def test_exception_acknowledges_its_message(error, is_manual, expected):
    """An exception applies with manual acknowledgement; with a policy, only a skipped message is acknowledged."""
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
        acknowledger = ExceptionAcknowledger(None, context=None, is_manual=is_manual, log=pytest.fail)
        await acknowledger.consume_scope(call_next, Message())
        return await acknowledger.after_processed(error, error(), None)

    assert asyncio.run(handle()) is (is_manual and error is not ValueError)
    assert calls == expected
