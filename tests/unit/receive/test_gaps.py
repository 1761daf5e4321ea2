"""Readers through lost connections, with a model of how the C++ reader continues."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from types import SimpleNamespace

import pulsar
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_ext._native.messages import InnerMessageId
from pulsar_ext._native.results import Timeout
from pulsar_ext._wire.message_id_data import MessageIdData, encode
from pulsar_ext.ids.position import Position
from pulsar_ext.receive import gaps
from pulsar_ext.receive.order import NOTHING, Part, ReceiveOrder, TransitionSubscriber
from pulsar_ext.receive.seek_positions import place_before

LEDGER = 7


@dataclass(frozen=True)
class Stored:
    """A message: its first and last entry, and its index in a batch."""

    first: int
    last: int
    index: int = -1

    def message_id(self):
        first = None if self.first == self.last else MessageIdData(LEDGER, self.first)
        data = MessageIdData(LEDGER, self.last, batch_index=self.index, first_chunk=first)
        return SimpleNamespace(
            ledger_id=lambda: LEDGER,
            entry_id=lambda: self.last,
            batch_index=lambda: self.index,
            serialize=lambda: encode(data),
        )


@st.composite
def topics(draw):
    """Messages in the order in which a reader gets them: alone, in batches, in chunks, and in interleaved chunks."""
    stored, entry = [], 0
    for kind, size in draw(st.lists(st.tuples(st.sampled_from("abcim"), st.integers(2, 4)), min_size=1, max_size=12)):
        if kind == "b":
            stored += [Stored(entry, entry, index) for index in range(size)]
        elif kind == "i":  # a0 b0 a1 b1
            stored += [Stored(entry, entry + 2), Stored(entry + 1, entry + 3)]
        elif kind == "m":  # others between two chunks
            stored += [*(Stored(entry + one, entry + one) for one in range(1, size)), Stored(entry, entry + size)]
        else:
            stored.append(Stored(entry, entry + (size - 1) * (kind == "c")))
        entry += {"a": 1, "b": 1, "c": size, "i": 4, "m": size + 1}[kind]
    return stored


class NativeReader(TransitionSubscriber):
    """Model of the C++ reader and its reopener; the broker sends entries while the queue has room."""

    part = Part.NATIVE

    def __init__(self, stored, room):
        self.stored, self.room = stored, room
        self.start = InnerMessageId.earliest
        self.connected = True
        self.replacements = 0
        self.begin()

    def begin(self):
        place = self.start.entry_id(), self.start.batch_index()
        self.left = [
            one for one in self.stored if one.first > place[0] or (one.last == place[0] and one.index > place[1] >= 0)
        ]

    def lose(self):
        """Lose the connection, and the chunked messages of which the C++ reader has some chunks."""
        if not self.left:
            return
        head = self.left[0]
        sent = self.left[min(self.room, len(self.left)) - 1].last
        resumed = head.last - (head.first != head.last)
        self.left = [
            one
            for one in self.left
            if one.first == one.last or (one.first >= resumed and not one.first < sent < one.last)
        ]

    @property
    def each(self):
        return self

    def __iter__(self):
        return self

    def __next__(self):
        return self.wait(0)

    def wait(self, _):
        if not self.left:
            raise Timeout
        return self.left.pop(0)

    def is_connected(self):
        return self.connected

    def has_message_available_async(self, answer):
        answer(pulsar.Result.Ok, self.has_more())

    retire = on_reopen = lambda *_: None

    def move_after(self, place):
        self.start = place
        self.replacements += 1

    def reopen_native(self):
        self.begin()
        return self, NOTHING


@given(topics(), st.integers(2, 6), st.sets(st.integers(0, 40), max_size=6))
def test_each_message_is_read_once_through_losses(stored, room, losses):
    """Whatever the C++ reader skips after lost connections, each message is read once and in order."""
    native, order, due, read = NativeReader(stored, room), ReceiveOrder(), [], []

    def first_incomplete(_admin, _topic, at):
        open_then = [one.first for one in stored if one.first <= at.entry_id < one.last]
        return Position(LEDGER, min(open_then)) if open_then else None

    context = SimpleNamespace(
        connection_polls=SimpleNamespace(begin=lambda _: None, end=lambda _: None),
        inquiries=SimpleNamespace(watch=lambda one, _=0: due.append(one)),
        admin_api=lambda: None,
    )
    native.has_more = lambda: len(read) < len(stored)
    source = gaps.GaplessSource(native, context, order, "t")
    order.reopener = native
    order.add_subscriber(native, source)
    source.begin(native, lambda: native, room, is_single=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gaps, "first_incomplete", first_incomplete)
        for step in range(200):
            if step in losses:
                native.lose()
                native.connected = False
                source.is_connection_unchanged(0.0)
                native.connected = True
            with contextlib.suppress(Timeout):
                read.append(next(source))
                continue
            if len(read) == len(stored) and step > max(losses, default=0):
                break
            if due:
                source.tick(0.0)
    assert read == stored


@given(topics())
def test_an_uninterrupted_reader_is_not_replaced(stored):
    """Without a lost connection, gaps between messages replace nothing."""
    native, order = NativeReader(stored, 2), ReceiveOrder()
    polls = SimpleNamespace(begin=lambda _: None)
    source = gaps.GaplessSource(native, SimpleNamespace(connection_polls=polls), order, "t")
    source.begin(native, lambda: native, 2, is_single=True)
    assert [next(source) for _ in stored] == stored
    assert not native.replacements


@pytest.mark.parametrize(
    ("target", "before"),
    [
        ((5, 3, -1), (5, 2, (1 << 31) - 1)),
        ((5, 3, 0), (5, 2, (1 << 31) - 1)),
        ((5, 3, 2), (5, 3, 1)),
        ((5, 0, -1), (5, -1, -1)),
    ],
)
def test_place_before_a_message(target, before):
    """The place before a message is in its batch, or after the whole entry before it."""
    found = place_before(InnerMessageId(-1, *target))
    assert (found.ledger_id(), found.entry_id(), found.batch_index()) == before
