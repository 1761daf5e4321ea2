"""A map follows from what is known of a topic, and its strips show all of it, however few cells there are."""

from __future__ import annotations

from doctor_facts import NOW, entry_of, facts_of, subscription_of
from hypothesis import given
from hypothesis import strategies as st

from pulsar_ext.ids.text import counted
from pulsar_ext.look.markup import age_text, bytes_text, evidence_text, rate_text
from pulsar_ext.look.survey import MapLimits, mapped_entries
from pulsar_ext.look.topic_map import cells_of, cursor_states, entry_kinds, joined, ledger_cells, map_of

HOLES = {"s": ("1:1", "[(1:2..1:5],(1:6..2:0]]", "2:3")}
"""Of ten and five entries the third, the seventh and the last four are not acknowledged; the last one was not read."""


def test_a_map():
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


def test_a_mark_is_at_the_mark_delete_position():
    """The mark-delete position is where the broker has it, whatever is acknowledged after it."""
    ranges = {"before": ("1:-1", "[(1:-1..1:1]]", None), "next": ("2:-1", "[]", None)}
    topic = map_of(facts_of([(1, 3), (2, 2)], ranges))
    assert {one.name: one.acknowledged_until for one in topic.cursors} == {"before": 0, "next": 3}


def test_strips():
    """With a cell for each entry each is what it is; with fewer, what matters most is seen."""
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
def test_no_hole_is_lost(sizes, acknowledged, most):
    """Whatever the cells, one shows a hole just if it has an entry of one; each ledger that is shown is in order."""
    ledgers = list(enumerate(sizes, 1))
    places = [(ledger, entry) for ledger, size in ledgers for entry in range(size)]
    flags = (acknowledged * len(places))[: len(places)]
    last = {}
    for ledger, entry in places:
        last[ledger, entry] = (ledger, entry - 1)
    ranges = ",".join(
        f"({last[at][0]}:{last[at][1]}..{at[0]}:{at[1]}]" for at, done in zip(places, flags, strict=True) if done
    )
    topic = map_of(facts_of(ledgers, {"s": ("1:-1", f"[{ranges}]", None)}))
    cells = cells_of(topic.entries, most)
    states = cursor_states(topic, topic.cursors[0], cells)
    holes = {number for one in topic.cursors[0].holes for number in range(one.first, one.last + 1)}
    end = max((number for number, done in enumerate(flags, 1) if done), default=0)
    assert holes == {number for number, done in enumerate(flags, 1) if not done and number < end}
    shown = {at for at, state in enumerate(states) if state == "hole"}
    assert shown == {(number - 1) * cells // topic.entries for number in holes}
    assert len(ledger_cells(topic, cells)) == cells
    assert sum(count for _, count, _ in joined(states)) == cells


def test_which_entries_are_looked_at():
    """All of a small topic; of a large one what each cursor waits for and some throughout, within the limit."""
    facts = facts_of([(1, 1000)], {"a": ("1:499", "[]", None), "b": ("1:699", "[]", None)})
    assert len(mapped_entries(facts, 1000)) == 1000
    chosen = mapped_entries(facts, 100)
    numbers = [one.entry_id for one in chosen]
    assert {500, 700} <= set(numbers)
    assert len(set(numbers)) == len(numbers) <= 100
    assert sum(number < 500 for number in numbers) > 10
    assert mapped_entries(facts, 0) == []
    assert (MapLimits().entries, MapLimits(pause_seconds=0).entries) == (200, 200)


def test_rates():
    """What came while it was watched counts; a cursor that was not yet there has the broker's own figure."""
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


def test_counts():
    """One of something is said in the singular, and any other number in the plural."""
    said = ["1 entry", "2 entries", "1 batch", "0 batches", "1,000 keys"]
    assert [
        counted(1, "entry"),
        counted(2, "entry"),
        counted(1, "batch"),
        counted(0, "batch"),
        counted(1000, "key"),
    ] == said
    assert counted(2, "topic or partition", "topics or partitions") == "2 topics or partitions"


def test_words():
    """Sizes, ages, rates and evidence are said as people say them."""
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
        "first 1:2, held by not known\nfirst 1:3, held by yes"
    )
    assert evidence_text([]) == "none"
