"""Runs of unacknowledged entries of a cursor."""

from __future__ import annotations

from doctor_facts import facts_of, internal_of
from hypothesis import given
from hypothesis import strategies as st

from pulsar_ext.doctor.findings import Run, unacknowledged_runs
from pulsar_ext.ids.position import Ledgers, Position


@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=5),
    st.integers(0, 20),
    st.sets(st.integers(1, 30)),
)
def test_runs_equal_a_walk_over_every_entry(sizes, mark, acknowledged):
    """Runs equal those of a walk over all entries, for any ledgers and acknowledgements."""
    ledgers = [(10 + index, size) for index, size in enumerate(sizes)]
    every = Ledgers(ledgers)
    total = sum(sizes)
    acknowledged = {number for number in acknowledged if mark < number <= total}
    unacknowledged = [number for number in range(1, total + 1) if number > mark and number not in acknowledged]
    expected = []
    for number in unacknowledged:
        after = sum(one > number for one in acknowledged)
        if expected and expected[-1].last == number - 1:
            expected[-1] = Run(expected[-1].first, number, after)
        else:
            expected.append(Run(number, number, after))
    ranges = ",".join(
        f"({at.ledger_id}:{at.entry_id - 1}..{at}]" for at in (every.number(one) for one in sorted(acknowledged))
    )
    at = every.number(min(mark, total)) if mark and total else Position(10, -1)
    internal = internal_of([*ledgers, (99, 0)], {"s": (str(at), f"[{ranges}]", None)})
    assert unacknowledged_runs(every, internal.cursors["s"]) == expected


def test_counts_of_a_million_entries_are_exact():
    """Counts are exact for a million entries, 1,000 subscriptions and 10,000 ranges on each of three."""
    ranges = ",".join(f"(1:{at - 1}..1:{at}]" for at in range(1, 20_000, 2))
    cursors = {f"s{one}": ("1:-1", f"[{ranges}]" if one < 3 else "[]", "1:20000") for one in range(1_000)}
    facts = facts_of([(1, 500_000), (2, 500_000)], cursors)
    assert {name: sum(run.entries for run in runs) for name, runs in facts.runs.items()} == {
        name: 990_000 if name in {"s0", "s1", "s2"} else 1_000_000 for name in cursors
    }
    assert len(facts.runs["s0"]) == 10_001
    assert facts.entries_until("s0", 20_000) == 10_000
    assert facts.first_unacknowledged("s0", 3) == [Position(1, 0), Position(1, 2), Position(1, 4)]


def test_read_until_is_before_the_read_position():
    """The last entry read is the one before the read position, also across ledgers."""
    facts = facts_of([(1, 5), (2, 5)], {"a": ("1:-1", "[]", "2:0"), "b": ("1:-1", "[]", "2:5")})
    assert (facts.read_until("a"), facts.read_until("b")) == (5, 10)
