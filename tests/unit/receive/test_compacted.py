"""What was removed of a batch, told from what is left: by what a message has, and how far compaction has gone."""

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
    """Give C++ messages of a batch at 5:`entry`, of contents and options of a send."""
    fields = [option_fields(options) for _, options in messages]
    made = _pulsar.MessageBatch()
    made.with_message_id(InnerMessageId(-1, 5, entry, -1))
    made.parse_from(b"".join(batch_parts([content for content, _ in messages], range(9), fields)), len(messages))
    return list(made.messages())


class Admin:
    """Says up to which entry of 5 compaction has gone, and counts how often it is asked; None for no answer."""

    def __init__(self, entry):
        self.entry, self.asked = entry, 0

    def internal_stats(self, _):
        self.asked += 1
        if self.entry is None:
            raise AdminUnavailable("no answer")
        return SimpleNamespace(compaction_horizon=Position(5, self.entry))


@pytest.mark.parametrize(
    ("message", "is_left"),
    [
        ((b"", {}), False),
        ((b"x", {}), True),
        ((b"", {"partition_key": "k"}), True),
        ((b"", {"ordering_key": "k"}), True),
        ((b"", {"properties": {"a": "b"}}), True),
        ((b"", {"event_timestamp": 1}), True),
    ],
)
def test_only_a_message_with_nothing_in_it_was_removed(message, is_left):
    """Whatever a message has says that it is left; the admin API is asked about the others only."""
    admin = Admin(9)
    (inner,) = batch(9, message)
    assert CompactionFilter(lambda: admin)(inner) is is_left
    assert admin.asked == (not is_left)


def test_what_is_beyond_the_compaction_is_left():
    """An empty message after the last compacted entry is left, and each later entry is asked about."""
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
    assert admin.asked == 4  # 2, and each beyond 3


def test_a_silent_admin_api_is_not_asked_again_at_once(caplog):
    """Without an answer what has nothing in it was removed; that is said once."""
    admin = Admin(None)
    found = CompactionFilter(lambda: admin)
    assert [found(inner) for inner in batch(9, (b"", {}), (b"", {}), (b"x", {}))] == [False, False, True]
    assert (admin.asked, len(caplog.records)) == (1, 1)


def test_a_transition_forgets_the_compaction():
    """The position may be of another cluster afterwards."""
    admin = Admin(9)
    found = CompactionFilter(lambda: admin)
    (inner,) = batch(4, (b"", {}))
    assert not found(inner)
    admin.entry = 3
    found.after(Transition.ANOTHER_CLUSTER)
    assert found(inner)
