"""Planning a skip, against a model that tries every position of a cursor."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from skip_model import NOW, Entry, Topic, expected_boundary, straight, topics

from pulsar_ext.errors import InvalidUse, SkipInsideMessage
from pulsar_ext.ids.position import Ledgers, Position
from pulsar_ext.skip.boundaries import Backlog, Boundary, BoundaryFinder, PartialBatch, Strategy
from pulsar_ext.skip.plan import cheapest_scan, check_count, plan_skip

_ACKED = st.sets(st.integers(0, 80))


@settings(max_examples=400)
@given(st.data(), _ACKED, st.integers(0, 30), st.sampled_from(["message", "entry"]), st.booleans())
def test_plan_equals_the_model(data, acked, count, unit, index):
    """The plan or the error equals the model, for any interleaving, broken messages and acknowledgements."""
    # To the index, a single chunk of an incomplete message looks like a message; plan.py documents that.
    entries, sizes = data.draw(topics(least=2 if index else 1))
    topic = Topic(entries, sizes, [number for number in acked if number < len(entries)], index=index)
    _check_plan(topic, count, unit)


@settings(max_examples=200, deadline=None)
@given(
    st.data(),
    topics(least=2, producers=2, sizes=st.one_of(st.just(40), st.integers(8, 60))),
    st.one_of(st.just(frozenset()), _ACKED),
    st.sampled_from(["message", "entry"]),
)
def test_plan_of_large_batches_equals_the_model(data, made, acked, unit):
    """With batches large enough for a count by the broker, chunks, holes and other producers are still detected."""
    topic = Topic(*made, [number for number in acked if number < len(made[0])])
    whole = len(topic.whole()) if unit == "message" else len(topic.at)
    _check_plan(topic, data.draw(st.integers(0, whole + 5)), unit)


def _check_plan(topic, count, unit):
    expected = expected_boundary(topic, count, unit)
    try:
        plan = plan_skip(topic, topic.situation(), count, unit)
    except SkipInsideMessage as error:
        possible = (error.below, error.above)
        plan = None
    if plan is None:
        assert possible == expected
        return
    found = (plan.boundary.messages, plan.boundary.entries)
    assert found[unit == "entry"] == expected[1:][unit == "entry"]
    assert plan.exact == (expected[1:][unit == "entry"] == count)
    if plan.exact:
        assert plan.boundary.position >= expected[0]
        # Positions before and after acknowledged entries are equivalent.
        left = [at for at in topic.at if at not in topic.acked and at <= plan.boundary.position]
        assert (max(left, default=topic.backlog.mark_delete), *found) in topic.boundaries()
    else:  # past the end: undeliverable entries may follow
        assert plan.boundary.messages == expected[1]


@settings(max_examples=300)
@given(topics(chunks=False), _ACKED, st.integers(0, 40), st.booleans(), st.sampled_from([True, None]))
def test_inside_a_batch(made, acked, count, index, batch_index_acks):
    """With batch index acknowledgements, every count up to the end is exact."""
    entries, sizes = made
    topic = Topic(entries, sizes, [number for number in acked if number < len(entries)], index=index)
    plan = plan_skip(topic, topic.situation(batch_index_acks=batch_index_acks), count, "message")
    messages = topic.whole()
    assert plan.boundary.messages == min(count, len(messages))
    assert plan.exact == (count <= len(messages))
    assert plan.moves == (plan.boundary.messages > 0)
    if count < len(messages):
        upcoming = (topic.backlog.ledgers.next(plan.boundary.position), plan.boundary.batch_index or 0)
        after = [(at, position) for at, position, _ in messages if at > plan.boundary.position]
        assert after[plan.boundary.batch_index or 0] == messages[count][:2]
        if plan.boundary.batch_index is not None:
            assert upcoming == messages[count][:2]


@pytest.mark.parametrize(
    ("each", "index", "strategy"), [(1, False, "arithmetic"), (1, True, "index"), (4, True, "index")]
)
def test_requests_do_not_grow(each, index, strategy):
    """A topic of one producer is counted with a few requests, at any distance of the boundary."""
    for total in (400, 8_000):
        topic = Topic(*straight(total, each), index=index)
        plan = plan_skip(topic, topic.situation(unbatched=each == 1), total // 2, "message")
        assert (plan.strategy.value, plan.boundary.messages, plan.exact) == (strategy, total // 2, True)
        assert topic.asked <= 7


@pytest.mark.parametrize("uneven", [False, True])
def test_large_batches_are_counted_by_the_broker(uneven):
    """Without an index, large batches of one producer take a few requests, even if some batches are smaller."""
    for total in (40, 800):
        entries = [Entry(0, 73 if uneven and number % 7 == 3 else 100) for number in range(total)]
        topic = Topic(entries, {3: total // 2, 4: 0, 7: total - total // 2})
        entries_before = total * 3 // 4
        count = sum(entry.messages for entry in entries[:entries_before])
        plan = plan_skip(topic, topic.situation(), count, "message")
        assert (plan.strategy, plan.boundary.messages, plan.boundary.entries, plan.exact) == (
            Strategy.ANALYSIS,
            count,
            entries_before,
            True,
        )
        assert topic.asked <= 12
        inside = plan_skip(topic, topic.situation(batch_index_acks=True), count + 9, "message")
        assert inside.strategy is Strategy.ANALYSIS
        assert (inside.boundary.messages, inside.boundary.batch_index) == (count + 9, 9)
        with pytest.raises(SkipInsideMessage) as error:
            plan_skip(topic, topic.situation(), count + 9, "message")
        assert (error.value.below, error.value.above) == (count, count + entries[entries_before].messages)


@pytest.mark.parametrize("odd", ["chunks", "producer", "hole", "short", "far"])
def test_plan_reads_what_the_broker_cannot_count(odd):
    """With chunks, another producer, holes, small batches or a near boundary, the topic is read."""
    entries = [Entry(0, 100)] * 80
    if odd == "chunks":
        entries[20:23] = [Entry(0, 1, chunk, 3, 1) for chunk in range(3)]
    elif odd == "producer":
        entries[20] = Entry(1, 100)
    elif odd == "short":
        entries = [Entry(0, 7)] * 80
    topic = Topic(entries, {3: 30, 4: 50}, [20] if odd == "hole" else ())
    wanted = {"far": 10, "short": 70}.get(odd, 60)
    count = [number for number in (boundary[1] for boundary in topic.boundaries()) if number][wanted]
    plan = plan_skip(topic, topic.situation(), count, "message")
    assert plan.strategy in (Strategy.READER, Strategy.HEADERS)
    assert (plan.boundary.messages, plan.exact) == (count, True)


def test_chunk_disproves_count_by_index():
    """A chunked message in the middle of an indexed topic prevents the count by index."""
    entries, sizes = straight(400)
    entries[200:203] = [Entry(0, 1, chunk, 3, 1) for chunk in range(3)]
    topic = Topic(entries, sizes, index=True)
    plan = plan_skip(topic, topic.situation(), 300, "message")
    assert plan.strategy is Strategy.READER
    assert (plan.boundary.messages, plan.boundary.entries) == (300, 302)


def test_unprintable_producer_name_proves_nothing():
    """Producer names that an HTTP header cannot represent prove nothing."""
    topic = Topic(*straight(400), index=True)
    topic.headers = {at: dataclasses.replace(one, producer_name="??") for at, one in topic.headers.items()}
    assert plan_skip(topic, topic.situation(), 300, "message").strategy is Strategy.READER


def test_incomplete_message_is_not_divided():
    """An incomplete chunked message is not divided; after 60 s without a new chunk it no longer counts."""
    entries = [Entry(0), Entry(1, 1, 0, 2, 7, published=NOW - 59_000), Entry(0), Entry(0)]
    topic = Topic(entries, {3: 4})
    with pytest.raises(SkipInsideMessage, match="begins at 3:1") as error:
        plan_skip(topic, topic.situation(), 2, "message")
    assert (error.value.below, error.value.above) == (1, None)
    plan = plan_skip(topic, topic.situation(now_ms=NOW + 2_000), 2, "message")
    assert (plan.boundary.position, plan.boundary.messages, plan.exact) == (Position(3, 2), 2, True)


@pytest.mark.parametrize(("idle", "strategy", "exact"), [(True, "subscription", True), (False, "headers", False)])
def test_hidden_acknowledgements(idle, strategy, exact):
    """Acknowledgements inside batches are read through the subscription; if it is busy, the plan is inexact."""
    topic = Topic([Entry(0, 4), Entry(1, 4)], {3: 2})
    plan = plan_skip(topic, topic.situation(may_hide_acks=True, idle=idle), 4, "message")
    assert (plan.strategy.value, plan.exact) == (strategy, exact)


def test_index_count_is_inexact_with_hidden_acks():
    """Batches that may be partly acknowledged count as whole: fewer messages are skipped, never more."""
    topic = Topic(*straight(400, 4), index=True)
    for count, hide, exact in ((200, True, False), (200, False, True), (999, False, False)):
        plan = plan_skip(topic, topic.situation(may_hide_acks=hide, idle=False), count, "message")
        assert (plan.strategy, plan.boundary.messages, plan.exact) == (Strategy.INDEX, min(count, 400), exact)


def test_index_count_ends_inside_a_batch():
    """The boundary is after the entry before that batch; a topic without batches hides no acknowledgements."""
    topic = Topic(*straight(400, 4), index=True)
    plan = plan_skip(topic, topic.situation(batch_index_acks=True), 203, "message")
    assert plan.boundary == Boundary(topic.at[49], 203, 50, 3)
    single = Topic(*straight(400), index=True)
    plan = plan_skip(single, single.situation(may_hide_acks=True, idle=False), 200, "message")
    assert (plan.boundary.position, plan.exact) == (single.at[199], True)


def test_single_batch_has_two_counts():
    """A backlog of one batch has two possible counts."""
    topic = Topic([Entry(0, 4)], {3: 1})
    with pytest.raises(SkipInsideMessage) as error:
        plan_skip(topic, topic.situation(), 2, "message")
    assert (error.value.below, error.value.above) == (0, 4)


def _long_topic(**odd):
    entries = [Entry(0)] * 400
    for number, entry in odd.items():
        entries[int(number[1:])] = entry
    return Topic(entries, {3: 150, 5: 250})


@pytest.mark.parametrize("hide", [False, True])
def test_counted_by_the_broker(hide):
    """A long range is skipped by arithmetic, in few requests, if the broker counts equal messages and entries."""
    topic = _long_topic()
    plan = plan_skip(topic, topic.situation(may_hide_acks=hide), 300, "message")
    assert (plan.boundary.position, plan.strategy, plan.exact) == (Position(5, 149), Strategy.ARITHMETIC, True)
    assert topic.asked < 20


@pytest.mark.parametrize(("count", "strategy"), [(256, Strategy.HEADERS), (257, Strategy.ARITHMETIC)])
def test_few_entries_are_read(count, strategy):
    """Up to 256 entries, their headers are read; above that, the broker is asked if any of them is a batch."""
    topic = _long_topic()
    assert plan_skip(topic, topic.situation(), count, "message").strategy is strategy


def test_cheapest_scan_reads_headers_of_few_or_big_entries():
    """The number of entries to read and their average size decide; the backlog may be shorter than the count."""
    long, short = _long_topic().backlog, Topic([Entry(0)] * 20, {3: 20}).backlog
    scans = [
        cheapest_scan(backlog, count, size)
        for backlog, count, size in (
            (long, 256, 1.0),
            (short, 10_000, 1.0),
            (Topic([], {}).backlog, 10_000, 1.0),
            (long, 257, 512 * 1024.0),
            (long, 257, 512 * 1024.0 - 1),
        )
    ]
    assert scans == [Strategy.HEADERS] * 4 + [Strategy.READER]


@pytest.mark.parametrize("count", [-1, 2**63, True, 1.0, "1"])
def test_invalid_count_raises(count):
    """Any other value raises before the broker is asked."""
    check_count(0)
    check_count(2**63 - 1)
    with pytest.raises(InvalidUse, match="Nothing was moved"):
        check_count(count)


def test_batch_in_a_long_stretch():
    """A batch among hundreds of single messages is detected and counted."""
    topic = _long_topic(n123=Entry(0, 3))
    plan = plan_skip(topic, topic.situation(), 300, "message")
    assert (plan.boundary.position, plan.strategy, plan.exact) == (Position(5, 147), Strategy.READER, True)


def test_chunks_in_a_long_stretch():
    """A count by the broker, which counts chunks as messages, does not hide a chunked message."""
    topic = _long_topic(n123=Entry(0, 1, 0, 2, 9), n124=Entry(0, 1, 1, 2, 9))
    plan = plan_skip(topic, topic.situation(), 300, "message")
    assert (plan.boundary.position, plan.strategy, plan.exact) == (Position(5, 150), Strategy.READER, True)


def test_partly_acknowledged_batch():
    """Messages acknowledged inside a batch do not count, and a boundary inside it is before the right message."""
    backlog = Backlog(Ledgers([(3, 2)]), Position(3, -1))
    finder = BoundaryFinder(backlog, 3, "message", inside_batches=True)
    finder.feed(PartialBatch(Position(3, 0), (1, 3)))
    finder.feed(PartialBatch(Position(3, 1), (0, 4, 7)))
    assert finder.exact
    assert (finder.boundary.position, finder.boundary.batch_index, finder.boundary.messages) == (Position(3, 0), 4, 3)
