"""Resumption of producer names, against histories of pushes, losses, crashes and incomplete messages."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from pulsar_ext.dedup.opening import OwnEntry, Resumption, certainly_missing, is_persisted, resume_chunked


@dataclass
class Topic:
    """A broker that has pushed more than is persisted: its last id, its entries and its snapshot."""

    pushed: int = -1
    entries: list[OwnEntry] = field(default_factory=list)
    snapshot: int | None = None
    counted: int = 0
    """The number of entries covered by the snapshot."""

    @property
    def persisted(self) -> int:
        return max((entry.sequence_id for entry in self.entries if not entry.is_partial), default=-1)

    def take_snapshot(self) -> None:
        if self.persisted >= 0:
            self.snapshot, self.counted = self.persisted, len(self.entries)

    def after_snapshot(self) -> list[OwnEntry]:
        return self.entries[self.counted :][::-1]


EVENTS = st.lists(st.sampled_from(["push", "persist", "lose", "snapshot"]), max_size=30)


@given(EVENTS)
def test_last_id_is_confirmed_only_if_persisted(events):
    """The topic confirms the last id if and only if its message is persisted, after any pushes and losses."""
    topic, pending = Topic(), []
    for event in events:
        if event == "push":
            topic.pushed += 1
            pending.append(topic.pushed)
        elif event == "persist" and pending:
            topic.entries.append(OwnEntry(pending.pop(0)))
        elif event == "lose":
            pending = []  # the broker has not rolled back its id yet
            topic.pushed = max(topic.pushed, topic.persisted)
        elif event == "snapshot":
            topic.take_snapshot()
    if topic.pushed >= 0:
        assert is_persisted(topic.pushed, topic.after_snapshot(), topic.snapshot) == (topic.pushed == topic.persisted)


@given(
    st.integers(0, 9),
    st.sampled_from(["nothing", "half", "whole under a derived name"]),
    st.booleans(),
    st.booleans(),
)
def test_incomplete_message_is_sent_under_another_name(last, follows, loaded_again, trimmed):
    """Chunks of an incomplete message may follow the last one; the broker counts it after reloading the topic."""
    entries = [OwnEntry(number, is_partial=chunk < 2) for number in range(last + 1) for chunk in range(3)]
    snapshot = None
    if trimmed:
        entries, snapshot = [], last
    says, expected = last, Resumption(last)
    if follows != "nothing":
        entries += [OwnEntry(last + 1, is_partial=True)] * 2
        says += loaded_again
        expected = Resumption(last, last + 1)
    if follows == "whole under a derived name":
        entries += [OwnEntry(last + 1, is_partial=chunk < 2) for chunk in range(3)]
        expected = Resumption(last + 1)
    assert resume_chunked(says, entries[::-1], snapshot) == expected


def test_last_id_beyond_stored_entries_is_uncertain():
    """Small messages that were pushed and lost are not mistaken for an incomplete message."""
    entries = [OwnEntry(14), OwnEntry(13)]
    assert resume_chunked(20, entries, None) is None
    assert resume_chunked(20, [OwnEntry(15, is_partial=True), *entries], None) is None
    assert resume_chunked(20, [], 14) is None


def test_last_id_without_entry_or_snapshot_is_not_persisted():
    """A last id is not confirmed without an entry or a snapshot."""
    assert not is_persisted(3, [], None)
    assert not is_persisted(3, [OwnEntry(2)], 3)


@given(st.sets(st.integers(0, 40)), st.sets(st.integers(0, 40)), st.integers(0, 40))
def test_missing_ids_exclude_stored_and_trimmed_ones(stored, asked, trimmed):
    """The ids that are not stored above a stored id are missing, whatever was stored or trimmed."""
    remaining = sorted(one for one in stored if one >= trimmed)
    lost = certainly_missing(asked, reversed(remaining))
    assert lost == {one for one in asked if one not in stored and remaining and one > remaining[0]}


def test_lookup_ends_below_the_lowest_asked_id():
    """The look-up ends at the first entry lower than all asked ids."""
    read = []
    assert certainly_missing({7, 8}, (read.append(one) or one for one in (9, 7, 5, 3))) == {8}
    assert read == [9, 7, 5]
