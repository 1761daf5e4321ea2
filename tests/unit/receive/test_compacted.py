"""Removed messages of a compacted batch, recognised by their content and the compaction horizon."""

from __future__ import annotations

from types import SimpleNamespace

import _pulsar
import pytest

from pulsar_ext._native.messages import InnerMessageId
from pulsar_ext._wire.batch_payload import batch_parts, option_fields
from pulsar_ext.errors import AdminUnavailable
from pulsar_ext.ids.position import Position
from pulsar_ext.receive.compacted import CompactionFilter
from pulsar_ext.receive.order import Transition


def batch(entry, *messages):
    """Return the C++ messages of a batch at 5:`entry`, from contents and send options."""
    fields = [option_fields(options) for _, options in messages]
    made = _pulsar.MessageBatch()
    made.with_message_id(InnerMessageId(-1, 5, entry, -1))
    made.parse_from(b"".join(batch_parts([content for content, _ in messages], range(9), fields)), len(messages))
    return list(made.messages())


class Admin:
    """Returns a compaction horizon in ledger 5, or raises if it is None; counts the queries."""

    def __init__(self, entry):
        self.entry, self.queries = entry, 0

    def internal_stats(self, _):
        self.queries += 1
        if self.entry is None:
            raise AdminUnavailable("no answer")
        return SimpleNamespace(compaction_horizon=Position(5, self.entry))


@pytest.mark.parametrize(
    ("message", "exists"),
    [
        ((b"", {}), False),
        ((b"x", {}), True),
        ((b"", {"partition_key": "k"}), True),
        ((b"", {"ordering_key": "k"}), True),
        ((b"", {"properties": {"a": "b"}}), True),
        ((b"", {"event_timestamp": 1}), True),
    ],
)
def test_only_empty_messages_count_as_removed(message, exists):
    """A message with any content exists; only the others need the admin API."""
    admin = Admin(9)
    (inner,) = batch(9, message)
    assert CompactionFilter(lambda: admin)(inner) is exists
    assert admin.queries == (not exists)


def test_empty_messages_beyond_the_horizon_are_kept():
    """An empty message beyond the compaction horizon exists, and each such entry queries the admin API."""
    admin = Admin(3)
    found = CompactionFilter(lambda: admin)
    assert [found(batch(entry, (b"", {}))[0]) for entry in (2, 3, 1, 4, 4, 5)] == [
        False,
        False,
        False,
        True,
        True,
        True,
    ]
    assert admin.queries == 4  # entry 2, and each entry beyond 3


def test_silent_admin_api_is_queried_once(caplog):
    """Without an answer, empty messages count as removed, and one warning is logged."""
    admin = Admin(None)
    found = CompactionFilter(lambda: admin)
    assert [found(inner) for inner in batch(9, (b"", {}), (b"", {}), (b"x", {}))] == [False, False, True]
    assert (admin.queries, len(caplog.records)) == (1, 1)


def test_transition_drops_the_compaction_horizons():
    """A horizon is dropped at a transition, as it may belong to another cluster."""
    admin = Admin(9)
    found = CompactionFilter(lambda: admin)
    (inner,) = batch(4, (b"", {}))
    assert not found(inner)
    admin.entry = 3
    found.on_after(Transition.ANOTHER_CLUSTER)
    assert found(inner)
