"""Skipping on real brokers: exactness in every cell, bad input, live consumers, faults; all with counts."""

import itertools
import random
import threading
import time

import pulsar
import pytest
from awaited import blocking_of

import pulsar_ext
from pulsar_ext.admin import PulsarAdmin
from pulsar_ext.errors import (
    AdminError,
    AdminNotAllowed,
    AdminNotFound,
    AdminUnauthorized,
    AdminUnavailable,
    CursorMoved,
    InvalidUse,
    PulsarExtError,
    SkipInsideMessage,
    SkipUnconfirmed,
)
from pulsar_ext.ids.position import Ledgers, Position, position_after
from pulsar_ext.skip.broker_count import BrokerCount
from pulsar_ext.skip.skipper import Skipper
from pulsar_ext.testing import Profile
from pulsar_ext.testing.profiles import get_profile

BOTH_CLIENTS = True

_SMALL_LEDGERS = {
    "maxMessageSize": "102400",
    "managedLedgerMaxEntriesPerLedger": "7",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
}
_PLAIN = Profile("skip", "small chunks, seven entries a ledger", _SMALL_LEDGERS)
_BATCH_ACKS = Profile(
    "skip-batch-acks",
    "the same, acknowledging inside batches",
    {**_SMALL_LEDGERS, "acknowledgmentAtBatchIndexLevelEnabled": "true"},
)
_INDEXED = Profile(
    "skip-indexed", "the same, entries numbered", {**_SMALL_LEDGERS, **get_profile("entry-index").settings}
)
_ONE_LEDGER = Profile(
    "skip-one-ledger",
    "small chunks, one ledger, counting 100 entries at a time",
    {"maxMessageSize": "102400", "subscriptionBacklogScanMaxEntries": "100"},
)

_KINDS = ("plain", "batched", "key-batched", "chunked", "mixed")
_COUNT = 24
_BIG = b"." * 220_000
_TYPES = (
    pulsar.ConsumerType.Exclusive,
    pulsar.ConsumerType.Shared,
    pulsar.ConsumerType.Failover,
    pulsar.ConsumerType.KeyShared,
)


class Bench:
    """One broker with what the tests do on it."""

    def __init__(self, broker, client, admin, namespace):
        self.broker, self.client, self.admin, self.namespace = broker, client, admin, namespace
        self._numbers = itertools.count()

    def topic(self, *subscriptions):
        name = f"persistent://{self.namespace}/skip-{next(self._numbers)}"
        self.admin.create_topic(name)
        for subscription in subscriptions or ("s",):
            self.admin.create_subscription(name, subscription, "earliest")
        return name

    def fill(self, topic, kind, count=_COUNT, begin=0, batch=4):
        """Send labelled messages: of a mixed topic plain, batched and chunked ones in turns of the size of a batch."""
        kinds = ("plain", "batched", "chunked") if kind == "mixed" else (kind,)
        labels = [f"{number:05}" for number in range(begin, begin + count)]
        for turn, start in enumerate(range(0, count, batch if kind == "mixed" else count)):
            one = kinds[turn % len(kinds)]
            producer = self.client.create_producer(topic, **_options(one, batch))
            for number, label in enumerate(labels[start : start + (batch if kind == "mixed" else count)]):
                key = f"k{number % 3}" if one == "key-batched" else None
                content = label.encode() + (_BIG if one == "chunked" and number % 2 == 0 else b"")
                producer.send_async(content, lambda *_: None, partition_key=key)
            producer.flush()
            producer.close()
        return self.stored(topic)

    def stored(self, topic):
        """The messages in the order of the topic: `(label, id)`."""
        reader = self.client.create_reader(topic, pulsar.MessageId.earliest)
        found = []
        while reader.has_message_available():
            message = reader.read_next(5000)
            found.append((_label(message), message.message_id()))
        reader.close()
        return found

    def acknowledge(self, topic, labels, subscription="s"):
        """Acknowledge some messages, by a consumer that leaves."""
        consumer = self.client.subscribe(
            topic, subscription, consumer_type=pulsar.ConsumerType.Shared, max_pending_chunked_message=100
        )
        left = set(labels)
        while left:
            message = consumer.receive(5000)
            if _label(message) in left:
                left.remove(_label(message))
                consumer.acknowledge(message)
        consumer.close()

    def drain(self, topic, subscription="s", **options):
        """Receive and acknowledge everything there is; the labels in order, once the backlog is empty."""
        options.setdefault("consumer_type", pulsar.ConsumerType.Shared)
        consumer = self.client.subscribe(topic, subscription, max_pending_chunked_message=100, **options)
        found = []
        # Nothing is waited for blindly: it ends when the broker says that nothing is left.
        deadline = time.monotonic() + 30
        while self.backlog(topic, subscription) or not found:
            try:
                message = consumer.receive(200)
            except pulsar.Timeout:
                if not self.backlog(topic, subscription) or time.monotonic() > deadline:
                    break
                continue
            found.append(_label(message))
            consumer.acknowledge(message)
        consumer.close()
        return found

    def backlog(self, topic, subscription="s"):
        return self.admin.stats(topic, precise_backlog=True).subscriptions[subscription].backlog_entries

    def mark_delete(self, topic, subscription="s"):
        return self.admin.internal_stats(topic).cursors[subscription].mark_delete_position


def _label(message):
    return message.data()[:5].decode()


def _options(kind, batch=4):
    if kind == "chunked":
        return {"batching_enabled": False, "chunking_enabled": True}
    if kind == "plain":
        return {"batching_enabled": False}
    based = pulsar.BatchingType.KeyBased if kind == "key-batched" else pulsar.BatchingType.Default
    return {
        "batching_enabled": True,
        "block_if_queue_full": True,
        "batching_type": based,
        "batching_max_messages": batch if kind != "key-batched" else 3 * batch,
        "batching_max_publish_delay_ms": 10_000,
    }


@pytest.fixture
def bench(request, pulsar_broker_factory, client_factory, pulsar_namespace_factory):
    broker = pulsar_broker_factory(getattr(request, "param", _PLAIN))
    quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    with PulsarAdmin(broker.admin_url, token=broker.token) as admin:
        client = client_factory(broker, admin=admin, logger=quiet)
        yield Bench(broker, client, admin, pulsar_namespace_factory(broker))


def _on(*profiles):
    return pytest.mark.parametrize("bench", profiles, indirect=True, ids=lambda profile: profile.name)


# -- exactness -------------------------------------------------------------------------------------------------------


@_on(_PLAIN, _ONE_LEDGER, _INDEXED, _BATCH_ACKS)
@pytest.mark.parametrize("holes", [False, True], ids=["whole", "holes"])
@pytest.mark.parametrize("kind", _KINDS)
def test_matrix(bench, kind, holes):
    """Skipping 0, 1, in the middle, to the end and past it: the next message is the right one, and the rest drains."""
    for count in (0, 1, 11, "end", "past"):
        topic = bench.topic()
        stored = bench.fill(topic, kind)
        gone = _holes(stored) if holes else set()
        if holes:
            bench.acknowledge(topic, gone)
        left = [label for label, _ in stored if label not in gone]
        wanted = {"end": len(left), "past": len(left) + 5}.get(count, count)
        before = bench.mark_delete(topic)
        refused = None
        try:
            result = bench.client.skip_messages(topic, "s", wanted)
        except SkipInsideMessage as error:
            refused = error
        if refused is not None:
            assert "batch" in kind or kind == "mixed"
            assert bench.broker.profile != _BATCH_ACKS
            assert bench.mark_delete(topic) == before
            assert refused.below < wanted < refused.above
            wanted = refused.above
            result = bench.client.skip_messages(topic, "s", wanted)
        assert result.skipped_messages == min(wanted, len(left))
        assert result.exact == (wanted <= len(left))
        assert result.redelivered_entries == 0
        rest = left[wanted:]
        # A consumer without this never acknowledges a batch that it gets in part; an official limit, in docs/skip.md.
        options = {"batch_index_ack_enabled": result.batch_index is not None}
        assert bench.drain(topic, **options) == rest if rest else not bench.backlog(topic)
        assert bench.backlog(topic) == 0


@_on(_PLAIN, _ONE_LEDGER)
@pytest.mark.parametrize("holes", [False, True], ids=["whole", "holes"])
@pytest.mark.parametrize("kind", _KINDS)
def test_matrix_of_large_batches(bench, kind, holes):
    """The same with batches so large that the broker counts them, which it does where nothing speaks against it."""
    counts = (1, 170, 240, "end", "past") if "batch" in kind else (1, 33, "end", "past")
    topic = bench.topic(*map(str, counts))
    stored = bench.fill(topic, kind, 320 if "batch" in kind else 80, batch=40 if "batch" in kind else 20)
    gone = _holes(stored) if holes else set()
    left = [label for label, _ in stored if label not in gone]
    for count in counts:
        subscription = str(count)
        bench.acknowledge(topic, gone, subscription)
        wanted = {"end": len(left), "past": len(left) + 5}.get(count, count)
        before, refused = bench.mark_delete(topic, subscription), None
        try:
            result = bench.client.skip_messages(topic, subscription, wanted)
        except SkipInsideMessage as error:
            refused = error
        if refused is not None:
            assert "batch" in kind or kind == "mixed"
            assert bench.mark_delete(topic, subscription) == before
            assert refused.below < wanted < refused.above
            wanted = refused.above
            result = bench.client.skip_messages(topic, subscription, wanted)
        assert (result.skipped_messages, result.exact) == (min(wanted, len(left)), wanted <= len(left))
        assert (result.strategy == "analysis") == (kind == "batched" and not holes and count != 1)
        assert (bench.drain(topic, subscription) if left[wanted:] else []) == left[wanted:]
        assert bench.backlog(topic, subscription) == 0


@_on(_ONE_LEDGER)
def test_the_broker_counts_in_several_steps(bench):
    """Where the broker counts 100 entries at a time, a longer topic is counted all the same, and holes not at all."""
    topic = bench.topic()
    stored = bench.fill(topic, "batched", 6_000, batch=20)
    result = bench.client.skip_messages(topic, "s", 4_800, dry_run=True)
    assert (result.strategy, result.skipped_messages, result.skipped_entries) == ("analysis", 4_800, 240)
    assert (result.exact, result.position_after) == (True, _position(stored[4_799][1]))
    bench.acknowledge(topic, {label for label, _ in stored[1_000:1_100] + stored[5_500:5_600]})
    ledgers = Ledgers(bench.admin.internal_stats(topic).ledger_sizes())
    ends = [_position(stored[number][1]) for number in (0, 4_800)]
    assert BrokerCount(bench.admin, topic, "s", ledgers).messages_between(*ends) == 4_700
    result = bench.client.skip_messages(topic, "s", 4_800)
    assert (result.strategy, result.skipped_messages, result.exact) == ("reader", 4_800, True)
    rest = [label for label, _ in stored[4_900:5_500] + stored[5_600:]]
    assert bench.drain(topic) == rest


def _position(message_id):
    return Position(message_id.ledger_id(), message_id.entry_id())


def _holes(stored):
    """Acknowledge whole entries only, so that every broker keeps them: the first, some in the middle, the last."""
    entries = {}
    for label, at in stored:
        entries.setdefault((at.ledger_id(), at.entry_id()), []).append(label)
    groups = list(entries.values())
    middle = len(groups) // 2
    return {label for number in {0, 2, middle, middle + 1, len(groups) - 1} for label in groups[number % len(groups)]}


@_on(_PLAIN)
def test_where_the_brokers_own_skip_goes(bench):
    """On random topics of many ledgers, position_after is where the broker's own skip puts the cursor."""
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


@_on(_ONE_LEDGER)
@pytest.mark.parametrize("odd", ["none", "holes", "batch", "chunks"])
def test_long_stretch_that_was_unloaded(bench, odd):
    """Where the broker's counters were lost, it counts again, and takes batches and chunks for what they are."""
    topic = bench.topic()
    bench.fill(topic, "plain", 450)
    if odd in ("batch", "chunks"):
        bench.fill(topic, {"batch": "batched", "chunks": "chunked"}[odd], 4, begin=450)
    stored = [label for label, _ in bench.fill(topic, "plain", 450, begin=460)]
    gone = set(stored[100:340]) | {stored[500]} if odd == "holes" else set()
    bench.acknowledge(topic, gone)
    bench.admin.unload(topic)
    left = [label for label in stored if label not in gone]
    result = bench.client.skip_messages(topic, "s", 600)
    assert (result.skipped_messages, result.exact) == (600, True)
    assert result.strategy == ("arithmetic" if odd in ("none", "holes") else "reader")
    assert bench.drain(topic) == left[600:]


@_on(_PLAIN)
def test_entries(bench):
    """Counted in entries, a skip goes where the broker's own goes with holes, except into a chunked message."""
    for count in (1, 3, 9):
        one, other = bench.topic(), bench.topic()
        for topic in (one, other):
            stored = bench.fill(topic, "batched", 40)
            bench.acknowledge(topic, _holes(stored))
        result = bench.client.skip_messages(one, "s", count, unit="entry")
        bench.admin.skip_entries(other, "s", count)
        assert (result.skipped_entries, result.exact) == (min(count, 10 - 5), count <= 5)
        assert bench.drain(one) == bench.drain(other)
    topic = bench.topic()
    bench.fill(topic, "chunked", 2)
    with pytest.raises(SkipInsideMessage, match="possible are 0 and 3") as error:
        bench.client.skip_messages(topic, "s", 1, unit="entry")
    assert (error.value.below, error.value.above) == (0, 3)


@_on(_PLAIN, _INDEXED)
def test_interleaved_chunks(bench):
    """Chunks of two producers interleave: no skip lands inside either message, and no message is cut or stuck."""
    topic = bench.topic()
    producers = [bench.client.create_producer(topic, chunking_enabled=True, batching_enabled=False) for _ in range(3)]
    for number in range(30):
        content = f"{number:05}".encode() + (_BIG * 3 if number % 3 else b"")
        producers[number % 3].send_async(content, lambda *_: None)
    for producer in producers:
        producer.flush()
    stored = [label for label, _ in bench.stored(topic)]
    left = list(stored)
    while left:
        try:
            result = bench.client.skip_messages(topic, "s", 2)
        except SkipInsideMessage as error:
            result = bench.client.skip_messages(topic, "s", error.above)
        assert result.skipped_messages > 0
        left = left[result.skipped_messages :]
        consumer = bench.client.subscribe(topic, "s", max_pending_chunked_message=100)
        if left:
            assert _label(consumer.receive(5000)) == left[0]
        consumer.close()
    assert bench.backlog(topic) == 0


@_on(_BATCH_ACKS)
def test_acknowledged_inside_batches(bench):
    """Single messages acknowledged inside batches count nothing: the skip is exact, and none of them comes again."""
    for count in (0, 1, 4, 9, 13):
        topic = bench.topic()
        stored = [label for label, _ in bench.fill(topic, "batched")]
        consumer = bench.client.subscribe(
            topic, "s", consumer_type=pulsar.ConsumerType.Shared, batch_index_ack_enabled=True
        )
        gone = {stored[number] for number in (0, 2, 5, 6, 7, 13, 22)}
        for _ in stored:
            message = consumer.receive(5000)
            if _label(message) in gone:
                consumer.acknowledge(message)
        consumer.close()
        result = bench.client.skip_messages(topic, "s", count)
        assert (result.skipped_messages, result.exact, result.redelivered_entries) == (count, True, 0)
        assert result.strategy == ("subscription" if count else "arithmetic")
        assert bench.drain(topic, batch_index_ack_enabled=True) == [one for one in stored if one not in gone][count:]


@_on(_PLAIN, _INDEXED)
@pytest.mark.parametrize("kind", _KINDS)
def test_message_id_after(bench, kind):
    """The message N later is the one a reader reads N later, across ledgers; past the end there is none."""
    topic = bench.topic()
    ids = [at for _, at in bench.fill(topic, kind)]
    for start, count in itertools.product(range(0, _COUNT, 5), (0, 1, 6, _COUNT)):
        expected = ids[start + count] if start + count < len(ids) else None
        found = bench.client.message_id_after(topic, ids[start], count)
        assert found == expected
        assert type(found) is type(expected)
    third = bench.client.message_id_after(topic, pulsar_ext.MessageId.earliest, 3)
    reader = bench.client.create_reader(topic, third, start_message_id_inclusive=True)
    assert reader.read_next(5000).message_id() == ids[2]
    reader.close()


# -- bad input -------------------------------------------------------------------------------------------------------


@_on(_PLAIN)
def test_bad_input(bench):
    """Each kind of bad input has its own clear error, and nothing moves."""
    topic = bench.topic()
    bench.fill(topic, "plain", 5)
    parent = f"persistent://{bench.namespace}/parent"
    bench.admin.create_partitioned_topic(parent, 2)
    skip = bench.client.skip_messages
    for count in (-1, True, 1.0, "1", None, 2**63):
        with pytest.raises(InvalidUse, match=r"count must be an int from 0"):
            skip(topic, "s", count)
    with pytest.raises(InvalidUse, match="unit must be"):
        skip(topic, "s", 1, unit="batch")
    with pytest.raises(InvalidUse, match="subscription's name"):
        skip(topic, "", 1)
    with pytest.raises(InvalidUse, match="Invalid topic"):
        skip("a/b", "s", 1)
    with pytest.raises(AdminNotFound, match=r"no subscription 'other'.*it has 's'"):
        skip(topic, "other", 1)
    with pytest.raises(AdminNotFound, match="not found"):
        skip(topic + "-missing", "s", 1)
    with pytest.raises(AdminNotAllowed, match=r"partition-0 to .*partition-1"):
        skip(parent, "s", 1)
    with pytest.raises(AdminNotAllowed, match="non-persistent"):
        skip(topic.replace("persistent", "non-persistent", 1), "s", 1)
    assert bench.backlog(topic) == 5
    assert bench.admin.subscriptions(topic) == ("s",)


def test_without_permission_or_admin(pulsar_broker_factory, pulsar_namespace_factory):
    """A role without permission and an admin API that does not answer each say so."""
    broker = pulsar_broker_factory("auth")
    topic = f"persistent://{pulsar_namespace_factory(broker)}/topic"
    good = pulsar_ext.AuthenticationToken(broker.token)
    with PulsarAdmin(broker.admin_url, token=broker.token) as admin:
        admin.create_topic(topic)
        admin.create_subscription(topic, "s", "earliest")
        for url, token, kind in (
            (broker.admin_url, None, AdminUnauthorized),
            ("http://127.0.0.1:1", broker.token, AdminUnavailable),
        ):
            with PulsarAdmin(url, token=token, deadline_seconds=1) as wrong:
                client = pulsar_ext.Client(broker.service_url, authentication=good, admin=wrong)
                with pytest.raises(kind):
                    client.skip_messages(topic, "s", 1)
                client.close()
        assert admin.internal_stats(topic).cursors["s"].mark_delete_position.entry_id == -1


@_on(_PLAIN)
def test_dry_run(bench):
    """A dry run says where the cursor would go, and moves nothing."""
    topic = bench.topic()
    bench.fill(topic, "chunked")
    plan = bench.client.skip_messages(topic, "s", 10, dry_run=True)
    assert (plan.dry_run, plan.skipped_messages, plan.skipped_entries) == (True, 10, 20)
    assert bench.mark_delete(topic) == plan.position_before
    done = bench.client.skip_messages(topic, "s", 10)
    assert bench.mark_delete(topic) == done.position_after == plan.position_after


# -- live consumers and faults ---------------------------------------------------------------------------------------


@_on(_PLAIN)
@pytest.mark.parametrize("kind", _TYPES, ids=lambda kind: kind.name)
def test_connected_consumer_with_prefetched_messages(bench, kind):
    """A connected consumer stays, still gets what it has prefetched, and loses and repeats nothing behind the skip."""
    topic = bench.topic()
    labels = [label for label, _ in bench.fill(topic, "plain", 40)]
    consumer = bench.client.subscribe(topic, "s", consumer_type=kind, receiver_queue_size=5)
    first = consumer.receive(5000)
    result = bench.client.skip_messages(topic, "s", 20)
    assert (result.skipped_messages, result.exact) == (20, True)
    assert bench.admin.stats(topic).subscriptions["s"].consumers
    consumer.acknowledge(first)
    bench.fill(topic, "plain", 5, begin=40)
    found = [_label(first)]
    while bench.backlog(topic):
        message = consumer.receive(5000)
        found.append(_label(message))
        consumer.acknowledge(message)
        consumer.flush_acks(confirm=True)  # or the backlog may not show it yet
    consumer.close()
    behind = [label for label in found if label >= labels[20]]
    assert behind == [f"{number:05}" for number in range(20, 45)]
    assert len(found) == len(set(found))


@_on(_PLAIN)
@pytest.mark.parametrize("connected", [False, True], ids=["idle", "connected"])
def test_end_acknowledged_out_of_order(bench, connected):
    """Where the topic ends with acknowledged entries, the broker's search gives up early; the skip goes on exactly."""
    topic = bench.topic()
    labels = [label for label, _ in bench.fill(topic, "plain", 40)]
    consumer = bench.client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Shared)
    messages = [consumer.receive(5000) for _ in labels]
    for message in messages[35:]:
        consumer.acknowledge(message)
    if not connected:
        consumer.close()
    while bench.backlog(topic) > 35:
        time.sleep(0.05)
    result = bench.client.skip_messages(topic, "s", 30)
    assert (result.skipped_messages, result.exact, bench.backlog(topic)) == (30, True, 5)
    consumer.close()
    assert bench.drain(topic) == labels[30:35]


@_on(_BATCH_ACKS)
def test_into_a_batch_beneath_a_consumer(bench):
    """Into a batch beneath a consumer nothing is lost, and the result says what comes again."""
    topic = bench.topic()
    labels = [label for label, _ in bench.fill(topic, "batched")]
    consumer = bench.client.subscribe(
        topic, "s", consumer_type=pulsar.ConsumerType.Shared, batch_index_ack_enabled=True
    )
    for message in [consumer.receive(5000) for _ in labels][16:20]:
        consumer.acknowledge(message)
    while bench.backlog(topic) > 5:
        time.sleep(0.05)
    result = bench.client.skip_messages(topic, "s", 6)
    assert (result.skipped_messages, result.batch_index, result.redelivered_entries) == (6, 2, 1)
    assert not result.exact
    consumer.close()
    assert bench.drain(topic, batch_index_ack_enabled=True) == labels[6:]


@_on(_PLAIN)
def test_cursor_moved(bench):
    """An acknowledgement between plan and execution is seen, and nothing is skipped."""
    topic = bench.topic()
    labels = [label for label, _ in bench.fill(topic, "plain")]
    skipper = Skipper(blocking_of(bench.client).context, topic, "s")
    plan = skipper.plan(10)
    bench.acknowledge(topic, {labels[4]})
    with pytest.raises(CursorMoved, match="Nothing was skipped") as error:
        skipper.apply(plan)
    assert error.value.retriable
    assert bench.drain(topic) == [label for label in labels if label != labels[4]]


@_on(_PLAIN)
@pytest.mark.parametrize("kind", _TYPES, ids=lambda kind: kind.name)
def test_while_others_produce_and_acknowledge(bench, kind):
    """Beside a producer and a consumer at work, whatever was neither skipped nor acknowledged arrives once."""
    topic = bench.topic()
    bench.fill(topic, "plain", 200)
    ended, received, sent, skipped, moved = threading.Event(), [], 200, 0, 0
    consumer = bench.client.subscribe(topic, "s", consumer_type=kind, receiver_queue_size=10)

    def consume():
        while not (ended.is_set() and not bench.backlog(topic)):
            try:
                message = consumer.receive(200)
            except pulsar.Timeout:
                continue
            received.append(_label(message))
            consumer.acknowledge(message)
            time.sleep(0.002)

    thread = threading.Thread(target=consume)
    thread.start()
    producer = bench.client.create_producer(topic, batching_enabled=False)
    for turn in range(20):
        for _ in range(10):
            producer.send(f"{sent:05}".encode())
            sent += 1
        if turn % 2:
            try:
                skipped += bench.client.skip_messages(topic, "s", 3).skipped_messages
            except CursorMoved:
                moved += 1
    ended.set()
    thread.join(60)
    producer.close()
    consumer.close()
    assert not thread.is_alive()
    missing = sent - len(set(received))
    assert len(received) == len(set(received))
    assert missing <= skipped  # what was prefetched arrives although it was skipped
    assert bench.backlog(topic) == 0


@pytest.mark.parametrize("moment", ["before", "after"])
def test_broker_killed(pulsar_own_broker, moment):
    """A kill -9 between plan and execution, and after it: nothing behind the target is lost."""
    broker = pulsar_own_broker(_PLAIN)
    with PulsarAdmin(broker.admin_url, deadline_seconds=2) as admin:
        quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
        client = pulsar_ext.Client(broker.service_url, admin=admin, logger=quiet)
        bench = Bench(broker, client, admin, "public/default")
        topic = bench.topic()
        labels = [label for label, _ in bench.fill(topic, "mixed")]
        skipper = Skipper(client.context, topic, "s")
        plan = skipper.plan(12)
        if moment == "after":
            skipper.apply(plan)
        broker.kill()
        if moment == "before":
            with pytest.raises((AdminUnavailable, SkipUnconfirmed)):
                skipper.apply(plan)
        broker.restart()
        found = bench.drain(topic)
        client.close()
    # The broker stores a mark-delete position at most once a second, so the skip itself may be undone by the crash.
    assert found == labels or (moment == "after" and found == labels[12:])


@_on(_PLAIN)
def test_unload_while_skipping(bench):
    """A topic that is unloaded again and again is never skipped too far; at worst an unload undoes a whole step."""
    topic = bench.topic()
    labels = [label for label, _ in bench.fill(topic, "mixed", 96)]
    ended = threading.Event()

    def unload():
        while not ended.wait(0.15):
            bench.admin.unload(topic)

    thread = threading.Thread(target=unload)
    thread.start()
    gone = failed = 0
    try:
        for _ in range(12):
            try:
                gone += bench.client.skip_messages(topic, "s", 4).skipped_messages
            except SkipUnconfirmed:
                failed += 1
                gone = 96 - _messages_left(bench, topic)  # perhaps done, perhaps not: the cursor tells
            except (AdminError, CursorMoved):
                failed += 1
    finally:
        ended.set()
        thread.join(30)
    assert gone + 4 * failed >= 48
    found = bench.drain(topic)
    # An unload may come before the broker has stored the position that its answers already show.
    assert len(found) >= 96 - gone
    assert found == labels[96 - len(found) :]


def _messages_left(bench, topic):
    while True:
        try:
            return bench.client.skip_messages(topic, "s", 1_000, dry_run=True).skipped_messages
        except PulsarExtError:
            time.sleep(0.1)


@_on(_PLAIN)
def test_scan_survives_trimmed_start_and_gaps(bench):
    """A topic of chunks longer than the header limit is read, gaps are filled from headers, and the count is right."""
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
