"""Where a name goes on, against every history of a topic that pushes, losses, crashes and half messages make."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from pulsar_ext.dedup.stored import OwnEntry, Resumption, is_persisted, not_held, resume_chunked


@dataclass
class Topic:
    """A broker that has pushed more than is persisted: what it says, what it holds, and what its snapshot says."""

    pushed: int = -1
    entries: list[OwnEntry] = field(default_factory=list)
    snapshot: int | None = None
    counted: int = 0
    """How many entries the snapshot counts."""

    @property
    def persisted(self) -> int:
        return max((one.carried for one in self.entries if not one.is_partial), default=-1)

    def take_snapshot(self) -> None:
        if self.persisted >= 0:
            self.snapshot, self.counted = self.persisted, len(self.entries)

    def behind(self) -> list[OwnEntry]:
        return self.entries[self.counted :][::-1]


EVENTS = st.lists(st.sampled_from(["push", "persist", "lose", "snapshot"]), max_size=30)


@given(EVENTS)
def test_a_number_is_believed_if_and_only_if_it_is_persisted(events):
    """Whatever was pushed, written and lost: the topic bears the number out exactly where nothing is missing."""
    topic, pending = Topic(), []
    for event in events:
        if event == "push":
            topic.pushed += 1
            pending.append(topic.pushed)
        elif event == "persist" and pending:
            topic.entries.append(OwnEntry(pending.pop(0)))
        elif event == "lose":
            pending = []  # the broker has not taken its number back yet
            topic.pushed = max(topic.pushed, topic.persisted)
        elif event == "snapshot":
            topic.take_snapshot()
    if topic.pushed >= 0:
        assert is_persisted(topic.pushed, topic.behind(), topic.snapshot) == (topic.pushed == topic.persisted)


@given(
    st.integers(0, 9),
    st.sampled_from(["nothing", "half", "whole under a derived name"]),
    st.booleans(),
    st.booleans(),
)
def test_a_half_written_message_is_sent_under_another_name(last, follows, loaded_again, trimmed):
    """Half of the next message may follow the last whole one; the broker counts it once it has loaded the topic."""
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


def test_a_number_beyond_what_the_topic_holds_is_not_certain():
    """Small messages that were pushed and lost are not taken for half a message, whose predecessors are there."""
    entries = [OwnEntry(14), OwnEntry(13)]
    assert resume_chunked(20, entries, None) is None
    assert resume_chunked(20, [OwnEntry(15, is_partial=True), *entries], None) is None
    assert resume_chunked(20, [], 14) is None


def test_what_no_snapshot_counts_and_no_entry_shows_is_not_persisted():
    """A number that nothing stands for is not believed."""
    assert not is_persisted(3, [], None)
    assert not is_persisted(3, [OwnEntry(2)], 3)


@given(st.sets(st.integers(0, 40)), st.sets(st.integers(0, 40)), st.integers(0, 40))
def test_what_is_missing_is_found_and_nothing_that_is_held_or_was_trimmed(held, asked, trimmed):
    """Whatever ids entries have and however many were trimmed: missing is what is not there above one that is."""
    left = sorted(one for one in held if one >= trimmed)
    lost = not_held(asked, reversed(left))
    assert lost == {one for one in asked if one not in held and left and one > left[0]}


def test_no_entry_below_the_lowest_in_question_is_asked_for_but_one():
    """Looking up ends at the first entry that is lower than all in question."""
    read = []
    assert not_held({7, 8}, (read.append(one) or one for one in (9, 7, 5, 3))) == {8}
    assert read == [9, 7, 5]
