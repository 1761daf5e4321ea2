"""Maps computed from facts, and their strips of any number of cells."""

from __future__ import annotations

from doctor_facts import NOW, entry_of, facts_of, subscription_of
from hypothesis import given
from hypothesis import strategies as st

from pulsar_ext.ids.text import counted
from pulsar_ext.look.survey import MapLimits, cursor_states, entry_kinds, joined, ledger_cells, map_of, mapped_entries
from pulsar_ext.look.text import age_text, bytes_text, evidence_text, rate_text

HOLES = {"s": ("1:1", "[(1:2..1:5],(1:6..2:0]]", "2:3")}
"""Of 10 and 5 entries, the third, the seventh and the last four are unacknowledged; the last one was not read."""


def test_map_follows_the_facts():
    """Ledgers, stretches, lag and kinds are those of the facts."""
    entries = [
        entry_of(1, 2, publish_time=NOW - 5_000),
        entry_of(1, 3, num_messages_in_batch=4),
        *(
            entry_of(1, 4 + at, uuid="u", sequence_id=4, chunk_id=at, num_chunks=3, total_chunk_size=90)
            for at in range(2)
        ),
    ]
    topic = map_of(facts_of([(1, 10), (2, 5)], HOLES, entries=entries))
    assert [(one.ledger_id, one.first, one.entries, one.is_open) for one in topic.ledgers] == [
        (1, 1, 10, False),
        (2, 11, 5, True),
    ]
    [cursor] = topic.cursors
    assert [(one.begin, one.end, one.acknowledged_behind) for one in cursor.stretches] == [
        ("1:2", "1:2", 7),
        ("1:6", "1:6", 4),
        ("2:1", "2:4", 0),
    ]
    assert (len(cursor.holes), cursor.backlog_entries, cursor.lag_seconds) == (2, 6, 5.0)
    assert topic.kinds == {3: "message", 4: "batch", 5: "chunk", 6: "chunk"}
    assert topic.batches == {4: 1}
    assert [(one.chunks, one.of_chunks) for one in topic.chunked] == [({5: 0, 6: 1}, 3)]


def test_mark_is_the_mark_delete_position():
    """The mark is the broker's mark-delete position, whatever is acknowledged after it."""
    ranges = {"before": ("1:-1", "[(1:-1..1:1]]", None), "next": ("2:-1", "[]", None)}
    topic = map_of(facts_of([(1, 3), (2, 2)], ranges))
    assert {one.name: one.acknowledged_until for one in topic.cursors} == {"before": 0, "next": 3}


def test_strips_show_the_highest_priority():
    """A cell of one entry shows its state; a cell of several entries shows the most important state."""
    topic = map_of(facts_of([(1, 10), (2, 5)], HOLES, entries=[entry_of(1, 3, num_messages_in_batch=4)]))
    [cursor] = topic.cursors
    short = {"acknowledged": "_", "hole": "#", "delivered": "=", "unread": "-"}
    assert "".join(short[one] for one in cursor_states(topic, cursor, 15)) == "__#___#____==--"
    assert "".join(short[one] for one in cursor_states(topic, cursor, 5)) == "#_#=="
    assert entry_kinds(topic, 3) == ["batch", None, None]
    assert joined(ledger_cells(topic, 15)) == [(0, 10, "1"), (10, 5, "2")]


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=6),
    st.lists(st.booleans(), min_size=1, max_size=240),
    st.integers(1, 60),
)
def test_every_hole_is_shown(sizes, acknowledged, limit):
    """A cell shows a hole exactly if it has an entry of one, for any number of cells, and ledgers stay in order."""
    ledgers = list(enumerate(sizes, 1))
    positions = [(ledger, entry) for ledger, size in ledgers for entry in range(size)]
    flags = (acknowledged * len(positions))[: len(positions)]
    last = {}
    for ledger, entry in positions:
        last[ledger, entry] = (ledger, entry - 1)
    ranges = ",".join(
        f"({last[at][0]}:{last[at][1]}..{at[0]}:{at[1]}]" for at, done in zip(positions, flags, strict=True) if done
    )
    topic = map_of(facts_of(ledgers, {"s": ("1:-1", f"[{ranges}]", None)}))
    cells = min(topic.entries, limit)
    states = cursor_states(topic, topic.cursors[0], cells)
    holes = {number for one in topic.cursors[0].holes for number in range(one.first, one.last + 1)}
    end = max((number for number, done in enumerate(flags, 1) if done), default=0)
    assert holes == {number for number, done in enumerate(flags, 1) if not done and number < end}
    shown = {at for at, state in enumerate(states) if state == "hole"}
    assert shown == {(number - 1) * cells // topic.entries for number in holes}
    assert len(ledger_cells(topic, cells)) == cells
    assert sum(count for _, count, _ in joined(states)) == cells


def test_mapped_entries_stay_within_the_limit():
    """All entries of a small topic are chosen; of a large one the cursors' first ones and evenly spaced ones."""
    facts = facts_of([(1, 1000)], {"a": ("1:499", "[]", None), "b": ("1:699", "[]", None)})
    assert len(mapped_entries(facts, 1000)) == 1000
    chosen = mapped_entries(facts, 100)
    numbers = [one.entry_id for one in chosen]
    assert {500, 700} <= set(numbers)
    assert len(set(numbers)) == len(numbers) <= 100
    assert sum(number < 500 for number in numbers) > 10
    assert mapped_entries(facts, 0) == []
    assert (MapLimits().entries, MapLimits(pause_seconds=0).entries) == (200, 200)


def test_rates_come_from_the_watch():
    """Rates are counted during the watch; a cursor that is new has the broker's rate."""
    before = facts_of([(1, 2)], {"s": ("1:-1", "[]", None)}, msgInCounter=5, limits={"pause_seconds": 2})
    after = facts_of([(1, 2)], {"s": ("1:-1", "[]", None)}, {"s": subscription_of(msgOutCounter=8)}, msgInCounter=25)
    watched = facts_of(
        [(1, 2)],
        {"s": ("1:-1", "[]", None)},
        {"s": subscription_of(msgOutCounter=2)},
        msgInCounter=5,
        limits={"pause_seconds": 2},
        later=[(after.stats, after.internal)],
    )
    assert (map_of(watched).rate_in, map_of(watched).cursors[0].rate_out) == (10.0, 3.0)
    assert map_of(before).rate_in == 0.0


def test_counted_uses_singular_and_plural():
    """A count of one is in the singular, and any other in the plural."""
    expected = ["1 entry", "2 entries", "1 batch", "0 batches", "1,000 keys"]
    assert [
        counted(1, "entry"),
        counted(2, "entry"),
        counted(1, "batch"),
        counted(0, "batch"),
        counted(1000, "key"),
    ] == expected
    assert counted(2, "topic or partition", "topics or partitions") == "2 topics or partitions"


def test_numbers_and_evidence_as_text():
    """Sizes, ages, rates and evidence have readable units."""
    assert [bytes_text(one) for one in (0, 1023, 1024, 5 * 2**30, 2**50)] == [
        "0 B",
        "1,023 B",
        "1.0 KiB",
        "5.0 GiB",
        "1,024.0 TiB",
    ]
    assert [age_text(one) for one in (0.5, 90, 7_200, 172_800)] == ["0.5 s", "1.5 min", "2.0 h", "2.0 d"]
    assert [rate_text(one) for one in (0, 0.5, 1_234)] == ["0 msg/s", "0.5 msg/s", "1,234 msg/s"]
    assert evidence_text([{"first": "1:2", "held_by": None}, {"first": "1:3", "held_by": True}]) == (
        "first 1:2, held by unknown\nfirst 1:3, held by yes"
    )
    assert evidence_text([]) == "none"
