"""A Ctrl-C at any line that acknowledges messages: no earlier acknowledgement is lost."""

from __future__ import annotations

import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace

import _pulsar
import pytest

import pulsar_ext.ack
from pulsar_ext._native.seek_gate import SeekGate
from pulsar_ext._runtime.ending import OpenSenders
from pulsar_ext._wire.message_id_data import decode
from pulsar_ext.ack.acknowledger import Acknowledger
from pulsar_ext.ack.delivery import AckGrouping
from pulsar_ext.message import received
from pulsar_ext.receive.order import ReceiveOrder

TOPIC = "persistent://public/default/t"
COUNT = 300
"""Larger than the inbox."""
POINTS = 30
EMPTY = b"\x00\x00\x00\x02\x18\x00"
PACKAGE = str(Path(pulsar_ext.ack.__file__).parent)


class Inner:
    """A fake native consumer that stores the acknowledged ids."""

    def __init__(self):
        self.acknowledged, self.upto = set(), (-1, -1)

    def is_connected(self):
        return True

    def acknowledge(self, acked):
        message_id = acked.message_id() if isinstance(acked, _pulsar.Message) else acked
        data = decode(message_id.serialize())
        if data.ledger_id >= 0:  # not a filler
            self.acknowledged.add((data.ledger_id, data.entry_id, data.batch_index))

    def acknowledge_cumulative(self, message_id):
        data = decode(message_id.serialize())
        self.upto = max(self.upto, (data.ledger_id, data.entry_id))

    def has(self, ledger, entry, index):
        """Return True if a message is acknowledged, by itself or with its entry."""
        return (ledger, entry) <= self.upto or not self.acknowledged.isdisjoint(
            {(ledger, entry, -1), (ledger, entry, index)}
        )


def messages_of(size):
    """Return COUNT messages in batches of `size`."""
    found = []
    for entry in range(COUNT // size):
        batch = _pulsar.MessageBatch()
        batch.with_message_id(_pulsar.MessageId(-1, 5, entry, -1))
        batch.parse_from(EMPTY * size, size)
        found += [received(inner) for inner in batch.messages()]
    return found


def opened(grouped):
    """Return the acknowledgements of a consumer with a fake native consumer."""
    scheduler = SimpleNamespace(watch=lambda _: None, keep=lambda _: None)
    context = SimpleNamespace(scheduler=scheduler, senders=OpenSenders(), cluster=SimpleNamespace(number=lambda: 0))
    acks = Acknowledger(
        context,
        ReceiveOrder(),
        SeekGate(None),
        TOPIC,
        "s",
        grouping=AckGrouping.of(100 if grouped else None, None, is_shared=False),
        is_shared=False,
        keeps_indexes=True,
    )
    acks.attach(Inner())
    return acks


@contextmanager
def interrupted_at(number):
    """Interrupt the code of `pulsar_ext.ack` at its n-th line; yield the number of lines passed."""
    passed = [0]

    def on_line(_, event, __):
        if event == "line":
            passed[0] += 1
            if passed[0] == number:
                raise KeyboardInterrupt
        return on_line

    def on_call(frame, *_):
        return on_line if frame.f_code.co_filename.startswith(PACKAGE) else None

    before = sys.gettrace()
    sys.settrace(on_call)
    try:
        yield passed
    finally:
        sys.settrace(before)


def acknowledge(acks, messages, number):
    """Acknowledge and flush with an interruption; return the surely acknowledged messages and the lines passed."""
    surely, inbox = [], acks.inbox.messages
    with interrupted_at(number) as passed, suppress(KeyboardInterrupt):
        for message in messages:
            inbox.append(message)
            if len(inbox) >= acks.limit:
                acks.process_inbox()
            surely.append(message)
        acks.flush()
    return surely, passed[0]


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("size", [1, 10])
def test_ctrl_c_loses_no_acknowledgement(size, grouped):
    """After an interruption at any of many lines, the next flush sends every acknowledgement."""
    messages = messages_of(size)
    _, lines = acknowledge(opened(grouped), messages, 0)
    assert lines > POINTS
    for number in range(1, lines, lines // POINTS):
        acks = opened(grouped)
        surely, _ = acknowledge(acks, messages, number)
        assert acks.pending >= 0
        assert acks.flush()
        for message in surely:
            data = decode(message.inner.message_id().serialize())
            assert acks.inner.has(data.ledger_id, data.entry_id, data.batch_index), number
        assert acks.pending == 0
