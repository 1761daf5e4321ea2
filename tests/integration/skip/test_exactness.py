"""Skips are exact for every kind of message and every way of counting."""

import random

import pulsar
import pytest
from awaited import blocking_of
from skip_bench import (
    BATCH_ACKS,
    BIG,
    INDEXED,
    KINDS,
    ONE_LEDGER,
    PLAIN,
    label_of,
    on,
    position_of,
    whole_entries,
)

from pulsar_ext.errors import (
    SkipInsideMessage,
)
from pulsar_ext.ids.position import Ledgers, Position, position_after
from pulsar_ext.skip.queries import Queries

BOTH_CLIENTS = True


@pytest.mark.core(slow="a matrix of kinds and counts")
@on(PLAIN, ONE_LEDGER, INDEXED, BATCH_ACKS)
@pytest.mark.parametrize("holes", [False, True], ids=["whole", "holes"])
@pytest.mark.parametrize("kind", KINDS)
def test_matrix(bench, kind, holes):
    """After a skip of 0, 1, a part, all or more, the next message is the right one and the rest can be drained."""
    for count in (0, 1, 11, "end", "past"):
        topic = bench.topic()
        stored = bench.fill(topic, kind)
        acked = whole_entries(stored) if holes else set()
        if holes:
            bench.acknowledge(topic, acked)
        remaining = [label for label, _ in stored if label not in acked]
        wanted = {"end": len(remaining), "past": len(remaining) + 5}.get(count, count)
        before = bench.mark_delete(topic)
        failure = None
        try:
            result = bench.client.skip_messages(topic, "s", wanted)
        except SkipInsideMessage as error:
            failure = error
        if failure is not None:
            assert "batch" in kind or kind == "mixed"
            assert bench.broker.profile != BATCH_ACKS
            assert bench.mark_delete(topic) == before
            assert failure.below < wanted < failure.above
            wanted = failure.above
            result = bench.client.skip_messages(topic, "s", wanted)
        assert result.skipped_messages == min(wanted, len(remaining))
        assert result.exact == (wanted <= len(remaining))
        assert result.redelivered_entries == 0
        rest = remaining[wanted:]
        # Without this option, a consumer never acknowledges a partly delivered batch; an official limit, see skip.md.
        options = {"batch_index_ack_enabled": result.batch_index is not None}
        assert bench.drain(topic, **options) == rest if rest else not bench.backlog(topic)
        assert bench.backlog(topic) == 0


@on(PLAIN, ONE_LEDGER)
@pytest.mark.parametrize("holes", [False, True], ids=["whole", "holes"])
@pytest.mark.parametrize("kind", KINDS)
def test_matrix_of_large_batches(bench, kind, holes):
    """Large batches are skipped exactly; the broker counts them if nothing speaks against it."""
    counts = (1, 170, 240, "end", "past") if "batch" in kind else (1, 33, "end", "past")
    topic = bench.topic(*map(str, counts))
    stored = bench.fill(topic, kind, 320 if "batch" in kind else 80, batch=40 if "batch" in kind else 20)
    acked = whole_entries(stored) if holes else set()
    remaining = [label for label, _ in stored if label not in acked]
    for count in counts:
        subscription = str(count)
        bench.acknowledge(topic, acked, subscription)
        wanted = {"end": len(remaining), "past": len(remaining) + 5}.get(count, count)
        before, failure = bench.mark_delete(topic, subscription), None
        try:
            result = bench.client.skip_messages(topic, subscription, wanted)
        except SkipInsideMessage as error:
            failure = error
        if failure is not None:
            assert "batch" in kind or kind == "mixed"
            assert bench.mark_delete(topic, subscription) == before
            assert failure.below < wanted < failure.above
            wanted = failure.above
            result = bench.client.skip_messages(topic, subscription, wanted)
        assert (result.skipped_messages, result.exact) == (min(wanted, len(remaining)), wanted <= len(remaining))
        assert (result.strategy == "analysis") == (kind == "batched" and not holes and count != 1)
        assert (bench.drain(topic, subscription) if remaining[wanted:] else []) == remaining[wanted:]
        assert bench.backlog(topic, subscription) == 0


@on(ONE_LEDGER)
def test_broker_counts_in_several_steps(bench):
    """A topic longer than the broker's limit of 100 entries per count is counted exactly, without its holes."""
    topic = bench.topic()
    stored = bench.fill(topic, "batched", 6_000, batch=20)
    result = bench.client.skip_messages(topic, "s", 4_800, dry_run=True)
    assert (result.strategy, result.skipped_messages, result.skipped_entries) == ("analysis", 4_800, 240)
    assert (result.exact, result.position_after) == (True, position_of(stored[4_799][1]))
    bench.acknowledge(topic, {label for label, _ in stored[1_000:1_100] + stored[5_500:5_600]})
    ledgers = Ledgers(bench.admin.internal_stats(topic).ledger_sizes())
    ends = [position_of(stored[number][1]) for number in (0, 4_800)]
    assert Queries(blocking_of(bench.client).context, topic, "s").messages_between(ledgers, *ends) == 4_700
    result = bench.client.skip_messages(topic, "s", 4_800)
    assert (result.strategy, result.skipped_messages, result.exact) == ("reader", 4_800, True)
    rest = [label for label, _ in stored[4_900:5_500] + stored[5_600:]]
    assert bench.drain(topic) == rest


@on(PLAIN)
def test_position_after_equals_broker_skip(bench):
    """On random topics of many ledgers, position_after returns where the broker's own skip moves the cursor."""
    choose = random.Random(4)
    for _ in range(6):
        topic = bench.topic()
        for kind in choose.sample(("plain", "batched", "chunked"), 2):
            bench.fill(topic, kind, choose.randrange(1, 14))
        if choose.random() < 0.5:
            bench.admin.unload(topic)
        for _ in range(5):
            stats = bench.admin.internal_stats(topic)
            start = stats.cursors["s"].mark_delete_position
            count = choose.randrange(9)
            bench.admin.skip_entries(topic, "s", count)
            assert bench.mark_delete(topic) == position_after(stats, start, count)


@on(ONE_LEDGER)
@pytest.mark.parametrize("odd", ["none", "holes", "batch", "chunks"])
def test_long_stretch_that_was_unloaded(bench, odd):
    """After the broker's counters were lost, the broker counts again, and batches and chunks are detected."""
    topic = bench.topic()
    bench.fill(topic, "plain", 450)
    if odd in ("batch", "chunks"):
        bench.fill(topic, {"batch": "batched", "chunks": "chunked"}[odd], 4, begin=450)
    stored = [label for label, _ in bench.fill(topic, "plain", 450, begin=460)]
    acked = set(stored[100:340]) | {stored[500]} if odd == "holes" else set()
    bench.acknowledge(topic, acked)
    bench.admin.unload(topic)
    remaining = [label for label in stored if label not in acked]
    result = bench.client.skip_messages(topic, "s", 600)
    assert (result.skipped_messages, result.exact) == (600, True)
    assert result.strategy == ("arithmetic" if odd in ("none", "holes") else "reader")
    assert bench.drain(topic) == remaining[600:]


@on(PLAIN)
def test_entries(bench):
    """A skip by entries goes where the broker's own skip goes, also with holes, but never into a chunked message."""
    for count in (1, 3, 9):
        one, other = bench.topic(), bench.topic()
        for topic in (one, other):
            stored = bench.fill(topic, "batched", 40)
            bench.acknowledge(topic, whole_entries(stored))
        result = bench.client.skip_messages(one, "s", count, unit="entry")
        bench.admin.skip_entries(other, "s", count)
        assert (result.skipped_entries, result.exact) == (min(count, 10 - 5), count <= 5)
        assert bench.drain(one) == bench.drain(other)
    topic = bench.topic()
    bench.fill(topic, "chunked", 2)
    with pytest.raises(SkipInsideMessage, match="possible counts are 0 and 3") as error:
        bench.client.skip_messages(topic, "s", 1, unit="entry")
    assert (error.value.below, error.value.above) == (0, 3)


@on(PLAIN, INDEXED)
def test_interleaved_chunks(bench):
    """Skips never end inside interleaved chunked messages of two producers, and the rest can be received."""
    topic = bench.topic()
    producers = [bench.client.create_producer(topic, chunking_enabled=True, batching_enabled=False) for _ in range(3)]
    for number in range(30):
        content = f"{number:05}".encode() + (BIG * 3 if number % 3 else b"")
        producers[number % 3].send_async(content, lambda *_: None)
    for producer in producers:
        producer.flush()
    stored = [label for label, _ in bench.stored(topic)]
    remaining = list(stored)
    while remaining:
        try:
            result = bench.client.skip_messages(topic, "s", 2)
        except SkipInsideMessage as error:
            result = bench.client.skip_messages(topic, "s", error.above)
        assert result.skipped_messages > 0
        remaining = remaining[result.skipped_messages :]
        consumer = bench.client.subscribe(topic, "s", max_pending_chunked_message=100)
        if remaining:
            assert label_of(consumer.receive(5000)) == remaining[0]
        consumer.close()
    assert bench.backlog(topic) == 0


@on(BATCH_ACKS)
def test_acknowledged_inside_batches(bench):
    """Messages acknowledged inside batches do not count: the skip is exact, and none of them is redelivered."""
    for count in (0, 1, 4, 9, 13):
        topic = bench.topic()
        stored = [label for label, _ in bench.fill(topic, "batched")]
        consumer = bench.client.subscribe(
            topic, "s", consumer_type=pulsar.ConsumerType.Shared, batch_index_ack_enabled=True
        )
        acked = {stored[number] for number in (0, 2, 5, 6, 7, 13, 22)}
        for _ in stored:
            message = consumer.receive(5000)
            if label_of(message) in acked:
                consumer.acknowledge(message)
        consumer.close()
        result = bench.client.skip_messages(topic, "s", count)
        assert (result.skipped_messages, result.exact, result.redelivered_entries) == (count, True, 0)
        assert result.strategy == ("subscription" if count else "arithmetic")
        assert bench.drain(topic, batch_index_ack_enabled=True) == [one for one in stored if one not in acked][count:]


@on(PLAIN)
def test_scan_survives_trimmed_start_and_gaps(bench):
    """A topic with chunks and batches is read, gaps are filled by headers, and the count is right."""
    topic = bench.topic()
    bench.fill(topic, "plain", 300)
    bench.fill(topic, "chunked", 6, begin=300)
    bench.fill(topic, "batched", 300, begin=306)
    labels = [label for label, _ in bench.stored(topic)]
    result = bench.client.skip_messages(topic, "s", 450)
    assert result.strategy == "reader"
    assert (result.skipped_messages, result.exact) == (450, True)
    assert bench.drain(topic) == labels[450:]
    assert isinstance(result.position_after, Position)
