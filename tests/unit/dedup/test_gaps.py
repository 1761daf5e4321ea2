"""Which gap between two ledgers may lack messages: the oldest that what is held does not fill."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from pulsar_ext.dedup.opening import Gap, first_unfilled
from pulsar_ext.dedup.stored import is_resent_as


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
