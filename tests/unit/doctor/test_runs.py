"""What a cursor has not acknowledged, as runs of numbers."""

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
def test_runs_are_those_of_a_walk_over_every_entry(sizes, mark, acknowledged):
    """Over any ledgers and acknowledgements, the runs are what going through all entries one by one gives."""
    ledgers = [(10 + index, size) for index, size in enumerate(sizes)]
    every = Ledgers(ledgers)
    total = sum(sizes)
    acknowledged = {number for number in acknowledged if mark < number <= total}
    left = [number for number in range(1, total + 1) if number > mark and number not in acknowledged]
    expected = []
    for number in left:
        behind = sum(one > number for one in acknowledged)
        if expected and expected[-1].last == number - 1:
            expected[-1] = Run(expected[-1].first, number, behind)
        else:
            expected.append(Run(number, number, behind))
    ranges = ",".join(
        f"({at.ledger_id}:{at.entry_id - 1}..{at}]" for at in (every.number(one) for one in sorted(acknowledged))
    )
    at = every.number(min(mark, total)) if mark and total else Position(10, -1)
    internal = internal_of([*ledgers, (99, 0)], {"s": (str(at), f"[{ranges}]", None)})
    assert unacknowledged_runs(every, internal.cursors["s"]) == expected


def test_a_million_entries_with_ranges_of_many_subscriptions():
    """With a million entries, every second of 20,000 acknowledged singly, and 1,000 subscriptions, counts are exact."""
    ranges = ",".join(f"(1:{at - 1}..1:{at}]" for at in range(1, 20_000, 2))
    cursors = {f"s{one}": ("1:-1", f"[{ranges}]" if one < 3 else "[]", "1:20000") for one in range(1_000)}
    facts = facts_of([(1, 500_000), (2, 500_000)], cursors)
    assert {name: sum(run.entries for run in runs) for name, runs in facts.runs.items()} == {
        name: 990_000 if name in {"s0", "s1", "s2"} else 1_000_000 for name in cursors
    }
    assert len(facts.runs["s0"]) == 10_001
    assert facts.entries_until("s0", 20_000) == 10_000
    assert facts.first_unacknowledged("s0", 3) == [Position(1, 0), Position(1, 2), Position(1, 4)]


def test_what_was_read():
    """The last entry that was read is the one before the read position, also over the end of a ledger."""
    facts = facts_of([(1, 5), (2, 5)], {"a": ("1:-1", "[]", "2:0"), "b": ("1:-1", "[]", "2:5")})
    assert (facts.read_until("a"), facts.read_until("b")) == (5, 10)
