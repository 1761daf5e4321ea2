"""The fast path of a reader of key ranges."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace

import pulsar
import pytest
from pulsar.schema import BytesSchema

from pulsar_ext._native.messages import InnerMessageBuilder
from pulsar_ext._native.results import AlreadyClosed, Timeout
from pulsar_ext.key_shared.hash_ranges import SlotFilter, as_ranges
from pulsar_ext.key_shared.hashing import KeyForms
from pulsar_ext.key_shared.reader_group import RangeReader
from pulsar_ext.message import message_class
from pulsar_ext.receive.order import Transition


class _Native:
    """A native reader of messages with keys."""

    def __init__(self, *keys):
        self.messages, self.closed, self.read_next_async = deque(map(_message, keys)), False, None

    def read_next(self, _):
        if self.closed:
            raise AlreadyClosed
        if not self.messages:
            raise Timeout
        return self.messages.popleft()

    def close(self):
        self.closed = True


def _message(key):
    builder = InnerMessageBuilder()
    builder.content(b"").partition_key(key)
    return builder.build()


def _official(native):
    official = pulsar.Reader()
    official._reader, official._schema = native, BytesSchema()
    return official


@pytest.fixture
def reader():
    """A reader of all keys whose native reader is replaced by a seek."""
    wanted = SlotFilter(as_ranges([(0, 40000), (40001, 65535)]), KeyForms(lambda: None, "text"))
    context = SimpleNamespace(opener=None, cluster=SimpleNamespace(may_change=False))
    opened = RangeReader._assemble_filtered_(
        wanted, _official(_Native("before")), context, message_class(BytesSchema()), "persistent://a/b/t"
    )
    after = _official(_Native("after", "later"))
    opened._order.reopener = SimpleNamespace(
        retire=opened.inner.close, reopen_native=lambda: (opened._set_native_(after), iter(()))
    )
    return opened


def test_fast_path_continues_after_seek(reader, monkeypatch):
    """After a seek, messages are read on the fast path again, from the reopened native reader."""
    with reader._order.run_transition(Transition.SEEK):
        pass
    monkeypatch.setattr(RangeReader, "_receive_next_", lambda *_: pytest.fail("read on the slow path"))
    assert [reader.read_next().partition_key() for _ in range(2)] == ["after", "later"]
