"""Reopened producer names: gaps between ledgers with possibly missing messages, and forgotten names.

`resume_forgotten` is tested against random histories of batches, names, kills and other producers.
"""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from pulsar_ext.dedup.opening import Gap, OwnEntry, Resumption, first_unfilled_gap, is_resent_as, resume_forgotten


@given(
    st.lists(st.sets(st.integers(0, 60), min_size=1), min_size=1, max_size=5),
    st.sets(st.integers(0, 60)),
    st.lists(st.booleans(), min_size=4, max_size=4),
)
def test_name_resumes_before_first_possibly_missing_id(ledgers, again, are_filled):
    """Nothing between ledgers is missing below the gap found, whatever ids were stored and resent."""
    ledgers = [sorted(ids) for ids in ledgers]
    pairs = [(ledger, before[-1], after[0]) for ledger, (before, after) in enumerate(pairwise(ledgers))]
    gaps = [Gap(ledger, before, after) for ledger, before, after in pairs if after > before + 1]
    again = again.union(
        *(range(one.before + 1, one.until) for one, filled in zip(gaps, are_filled, strict=False) if filled)
    )
    gap = first_unfilled_gap(gaps, again)
    for older in gaps if gap is None else gaps[: gaps.index(gap)]:
        assert again >= set(range(older.before + 1, older.until))
    if gap is not None:
        assert not again >= set(range(gap.before + 1, gap.until))


def test_is_resent_as_recognizes_derived_names():
    """`p+1` is derived from `p`; `p+x`, `p+`, `q+1` and `p~1` are not."""
    assert is_resent_as("p+1", "p")
    assert is_resent_as("p+1+12", "p+1")
    assert not any(is_resent_as(shown, "p") for shown in ("p+x", "p+", "q+1", "p~1", "p", "p+1+1"))


STEP = 100
"""Size of the id range of one batch."""


@given(st.data())
def test_forgotten_name_resumes_after_its_stored_ids(data):
    """The persisted ids of a name's current batch are found, whatever the interleaving and the end of the batch."""
    topic, last_ids = [], {}
    batches = data.draw(st.integers(1, 4))
    for batch in range(batches):
        writers = data.draw(st.lists(st.sampled_from("abc"), min_size=1, unique=True))
        rows = [(writer, batch * STEP + number) for writer in writers for number in range(data.draw(st.integers(1, 4)))]
        rows.sort(key=lambda row: row[1])
        if batch == batches - 1:
            rows = rows[: data.draw(st.integers(0, len(rows)))]
        for writer, number in rows:
            last_ids[writer] = number
            topic.append(OwnEntry(number, name=f"q-{writer}"))
            if data.draw(st.booleans()):
                topic.append(OwnEntry(10**9, name="other"))
    for writer in "abc":
        found, certain = resume_forgotten(f"q-{writer}", "q-", (batches - 1) * STEP, reversed(topic))
        persisted = last_ids.get(writer, -1)
        assert found.incomplete_id is None
        assert (found.published == persisted) or (persisted < (batches - 1) * STEP and found.published == -1)
        if batches > 1:
            assert certain
        alone, _ = resume_forgotten(f"q-{writer}", "", (batches - 1) * STEP, reversed(topic))
        assert alone.published == persisted


def test_incomplete_chunked_message_is_found():
    """An incomplete chunked message is sent under another name, whatever entries are before it."""
    incomplete = OwnEntry(7, is_partial=True, name="q-a")
    for before, published in (([OwnEntry(3, name="q-a")], 3), ([OwnEntry(2, name="q-b")], -1)):
        found, certain = resume_forgotten("q-a", "q-", 5, [incomplete, *before])
        assert certain
        assert (found.published, found.incomplete_id) == (published, 7)
    found, _ = resume_forgotten("q-a", "", 0, [OwnEntry(7, name="q-a~1"), incomplete])
    assert (found.published, found.incomplete_id) == (7, None)


def test_messages_resent_out_of_order_do_not_move_the_name():
    """Messages resent as `p+1` are stored after later ones of `p`, whose highest id counts."""
    entries = [OwnEntry(5, name="p+1"), OwnEntry(9, name="p")]
    assert resume_forgotten("p", "", 0, entries) == (Resumption(9), True)
