"""Sending by the native core beside the same steps in Python."""

from __future__ import annotations

import gc
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_ext._native import core
from pulsar_ext._native.messages import batch_message
from pulsar_ext._wire.batch_payload import batch_parts, whole_batch
from pulsar_ext.produce.batch import BatchGroup, Bounds
from pulsar_ext.produce.core import Items, batch_payload, deliver, entry_message, joining
from pulsar_ext.produce.options import SequenceCounter
from pulsar_ext.produce.outcome import PendingMessages

pytestmark = pytest.mark.skipif(not core.IS_USED, reason="the native core is not used")

_KEYS = st.sampled_from([b"", b"\x12\x03key", b"\x12\x01k\x3a\x02or"])
_MESSAGES = st.lists(
    st.tuples(st.binary(max_size=300), st.integers(0, 2**63 - 1), st.sampled_from([b"", b"\x28\x07"])), min_size=1
)


class _Dispatch(core.DispatchBase):
    pass


@given(_MESSAGES, st.booleans(), _KEYS, st.integers(0, 2**63 - 1))
def test_batches_are_written_as_in_python(messages, with_fields, keys, sequence_id):
    """The payload of a batch, and the C++ message that is one entry, are those that Python makes."""
    contents, ids, fields = zip(*messages, strict=True)
    fields = fields if with_fields else None
    payload = batch_payload(contents, ids, fields)
    assert payload == b"".join(batch_parts(contents, ids, fields))
    expected = batch_message(whole_batch((payload,), len(ids), sequence_id, keys), len(ids))
    for given_payload in (payload, memoryview(payload)):
        made = entry_message(given_payload, len(ids), sequence_id, keys)
        for name in ("data", "partition_key", "ordering_key", "properties", "event_timestamp", "has_null_value"):
            assert getattr(made, name)() == getattr(expected, name)()


@given(st.lists(st.tuples(st.binary(max_size=3), st.none(), st.integers(0, 2**62), st.binary(max_size=2), _KEYS)))
def test_items_return_what_was_appended(rows):
    """The columns of an open batch are those of the messages that joined it."""
    items = Items()
    for row in rows:
        items.append(row)
    assert len(items) == len(rows)
    assert list(zip(*items.columns(), strict=True)) == rows


@pytest.mark.parametrize(
    "row", [("text", None, 1, b"", b""), (b"", None, "1", b"", b""), (b"", None, 1, None, b""), (b"", None, 1, b"")]
)
def test_items_decline_other_rows(row):
    """A row of other types raises TypeError, and nothing joins."""
    items = Items()
    with pytest.raises(TypeError):
        items.append(row)
    assert len(items) == 0


def test_callbacks_get_the_ids_of_their_places(caplog):
    """Each callback gets the result and its own id; what one raises is logged, and the next one is called."""
    seen = []

    def fails(_result, _message_id):
        raise KeyError("lost")

    keep = [lambda result, message_id: seen.append((result, message_id)), None, fails]
    deliver([keep[0], keep[1], keep[2], keep[0]], "ok", 7, 8, -1)
    assert [
        (result, each.ledger_id(), each.entry_id(), each.partition(), each.batch_index()) for result, each in seen
    ] == [("ok", 7, 8, -1, 0), ("ok", 7, 8, -1, 3)]
    assert seen[0][1] < seen[1][1]
    assert seen[1][1]._batch_size == 4
    assert "KeyError: 'lost'" in caplog.text


_SENDS = st.lists(
    st.sampled_from(["join", "kwarg", "text", "invalid", "no callback", "option", "busy", "unsteady", "release"]),
    max_size=30,
)


@given(_SENDS, st.integers(1, 6), st.integers(1, 9), st.integers(1, 9))
def test_a_message_joins_only_if_it_may(sends, most, size, limit):
    """A plain message joins while the batch has room and is not filled; any other send calls the sender's method."""
    dispatch, sequence, longer = _Dispatch(), SequenceCounter(4), []
    group = BatchGroup(Bounds(most, size), by_key=False)
    group.join("", (b"", None, 0, b"", b""))
    pending = PendingMessages(limit)
    dispatch.inside, dispatch.group, dispatch.pending = None, group, pending
    send = joining(lambda *args, **kwargs: longer.append((args, kwargs)), dispatch, sequence)

    def callback(_result, _message_id):
        """Do nothing."""

    free, left, joined = most - 1, size, 0
    for kind in sends:
        arguments = {"text": ("x", callback), "invalid": (b"x", 1), "no callback": (b"x", None)}
        arguments = arguments.get(kind, (b"x", callback))
        options = {"properties": {"a": "b"}} if kind == "option" else {}
        dispatch.inside = 1 if kind == "busy" else None
        sequence.steady = kind != "unsteady"
        if kind == "release":
            pending.released = pending.accepted
        may = kind in ("join", "kwarg", "no callback", "release") and free > 1 and left > 1
        may = may and pending.accepted - pending.released < limit
        before = len(longer)
        if kind == "kwarg":
            send(b"x", callback=callback)
        else:
            send(*arguments, **options)
        assert len(longer) == before + (not may)
        if may:
            free, left, joined = free - 1, left - 1, joined + 1
        elif kind != "kwarg":
            assert longer[-1] == (arguments, options)
    assert (group.free_messages, group.free_bytes, sequence.last, pending.accepted) == (free, left, 4 + joined, joined)
    assert group.only_items.columns()[2] == (0, *range(5, 5 + joined))


def test_open_batches_are_freed_in_cycles():
    """A callback that refers to its own open batch does not keep it alive."""

    class Callback:
        def __call__(self, _result, _message_id):
            """Do nothing."""

    items, callback = Items(), Callback()
    callback.items = items
    items.append((b"", callback, 1, b"", b""))
    gone = weakref.ref(callback)
    del items, callback
    gc.collect()
    assert gone() is None
