"""What a reopened name has to know: gaps between ledgers that may lack messages, and what a forgotten name has stored.

The recall is tested against every history of batches, names, kills and other producers.
"""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from pulsar_ext.dedup.opening import FamilyEntry, Gap, first_unfilled, recalled
from pulsar_ext.dedup.stored import OwnEntry, Resumption, is_resent_as


@given(st.lists(st.sets(st.integers(0, 60), min_size=1), min_size=1, max_size=5), st.sets(st.integers(0, 60)))
def test_the_name_goes_on_in_front_of_the_first_id_that_may_be_missing(ledgers, again):
    """Whatever ids ledgers have and are sent again: below the gap that is found nothing between ledgers is missing."""
    ledgers = [sorted(one) for one in ledgers]
    pairs = [(ledger, before[-1], behind[0]) for ledger, (before, behind) in enumerate(pairwise(ledgers))]
    gaps = [Gap(ledger, before, behind) for ledger, before, behind in pairs if behind > before + 1]
    gap = first_unfilled(gaps, again)
    for older in gaps if gap is None else gaps[: gaps.index(gap)]:
        assert again >= set(range(older.before + 1, older.behind))
    if gap is not None:
        assert not again >= set(range(gap.before + 1, gap.behind))


def test_a_name_for_refused_messages_is_told_from_one_that_an_application_gives():
    """`p+1` is one, `p+x`, `p+`, `q+1` and `p~1` are not."""
    assert is_resent_as("p+1", "p")
    assert is_resent_as("p+1+12", "p+1")
    assert not any(is_resent_as(shown, "p") for shown in ("p+x", "p+", "q+1", "p~1", "p", "p+1+1"))


STEP = 100
"""Ids of one batch."""


@given(st.data())
def test_a_name_goes_on_behind_what_the_topic_has_of_its_batch(data):
    """However lanes and others interleave, and wherever the last batch ended: exactly its persisted ids are known."""
    topic, standing = [], {}
    batches = data.draw(st.integers(1, 4))
    for batch in range(batches):
        lanes = data.draw(st.lists(st.sampled_from("abc"), min_size=1, unique=True))
        rows = [(lane, batch * STEP + number) for lane in lanes for number in range(data.draw(st.integers(1, 4)))]
        rows.sort(key=lambda row: row[1])
        if batch == batches - 1:
            rows = rows[: data.draw(st.integers(0, len(rows)))]
        for lane, number in rows:
            standing[lane] = number
            topic.append(FamilyEntry(f"q-{lane}", OwnEntry(number)))
            if data.draw(st.booleans()):
                topic.append(FamilyEntry("other", OwnEntry(10**9)))
    for lane in "abc":
        found, certain = recalled(f"q-{lane}", "q-", (batches - 1) * STEP, reversed(topic))
        persisted = standing.get(lane, -1)
        assert found.half_written is None
        assert (found.published == persisted) or (persisted < (batches - 1) * STEP and found.published == -1)
        if batches > 1:
            assert certain
        alone, _ = recalled(f"q-{lane}", "", (batches - 1) * STEP, reversed(topic))
        assert alone.published == persisted


def test_half_a_message_is_remembered():
    """A message in chunks that was half written is sent under another name, whatever stands before it."""
    half = FamilyEntry("q-a", OwnEntry(7, is_partial=True))
    for before, published in (([FamilyEntry("q-a", OwnEntry(3))], 3), ([FamilyEntry("q-b", OwnEntry(2))], -1)):
        found, certain = recalled("q-a", "q-", 5, [half, *before])
        assert certain
        assert (found.published, found.half_written) == (published, 7)
    found, _ = recalled("q-a", "", 0, [FamilyEntry("q-a~1", OwnEntry(7)), half])
    assert (found.published, found.half_written) == (7, None)


def test_what_was_sent_again_out_of_order_does_not_say_where_a_name_goes_on():
    """Messages that were sent again as `p+1` stand behind later ones of `p`, and its highest id is what counts."""
    entries = [FamilyEntry("p+1", OwnEntry(5)), FamilyEntry("p", OwnEntry(9))]
    assert recalled("p", "", 0, entries) == (Resumption(9), True)
