"""Acknowledgements: in groups, with a receipt, kept over disconnections, and exactly what was acknowledged."""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time

import pytest
from chunked import THREE_CHUNKS, acknowledged, drain, eventually, index_of, payload

import pulsar_ext as pulsar
from pulsar_ext import MessageId
from pulsar_ext.ids.position import Position

BOTH_CLIENTS = True

TYPES = [
    pulsar.ConsumerType.Exclusive,
    pulsar.ConsumerType.Failover,
    pulsar.ConsumerType.Shared,
    pulsar.ConsumerType.KeyShared,
]
SHARED = pulsar.ConsumerType.Shared
EARLIEST = {"initial_position": pulsar.InitialPosition.Earliest}


def send_batches(client, topic, batches=4, size=5):
    """Send `batches` entries of `size` messages each."""
    producer = client.create_producer(
        topic, batching_enabled=True, batching_max_messages=size, batching_max_publish_delay_ms=5_000
    )
    for index in range(batches * size):
        producer.send_async(payload(index, 20), None)
    producer.flush()
    producer.close()


def send_plain(client, topic, count, start=0):
    """Send messages that are an entry each."""
    producer = client.create_producer(topic)
    for index in range(start, start + count):
        producer.send_async(payload(index, 20), None)
    producer.flush()


def shown(admin, topic):
    """The numbers of the entries that the cursor shows, in a topic of one ledger."""
    return {position.entry_id for position in acknowledged(admin, topic, "s")}


@pytest.mark.parametrize("type_", TYPES)
@pytest.mark.parametrize("grouping", [{}, {"ack_group_time_ms": 100}])
def test_a_confirmed_flush_is_on_the_cursor(client, topic, admin, type_, grouping):
    """After flush_acks(confirm=True) the cursor has what was acknowledged, holes included, and nothing else."""
    consumer = client.subscribe(topic, "s", type_, **grouping)
    send_plain(client, topic, 12)
    messages = drain(consumer.receive, 12)
    for index in (0, 1, 2, 5, 6, 9):
        consumer.acknowledge(messages[index])
    consumer.flush_acks(confirm=True)
    assert consumer.pending_acks() == 0
    assert shown(admin, topic) == {0, 1, 2, 5, 6, 9}
    consumer.acknowledge_many(messages[3:])
    consumer.flush_acks(confirm=True)
    assert shown(admin, topic) == set(range(12))


def test_a_group_waits_for_its_time_and_leaves_by_its_size(client, topic, admin):
    """A long group time holds acknowledgements back, counted by pending_acks(); a full group leaves at once."""
    consumer = client.subscribe(topic, "s", SHARED, ack_group_time_ms=600_000, max_ack_group_size=5)
    send_plain(client, topic, 9)
    messages = drain(consumer.receive, 9)
    for message in messages[:4]:
        consumer.acknowledge(message)
    time.sleep(0.5)
    assert (consumer.pending_acks(), shown(admin, topic)) == (4, set())
    consumer.acknowledge(messages[4])
    assert eventually(lambda: shown(admin, topic) == {0, 1, 2, 3, 4})
    assert consumer.pending_acks() == 0
    consumer.acknowledge(messages[5])
    consumer.close()
    assert shown(admin, topic) == {0, 1, 2, 3, 4, 5}


def test_without_a_group_time_each_leaves_at_once(client, topic, admin):
    """With 0 ms nothing is pending after acknowledge(), and the cursor shows it soon."""
    consumer = client.subscribe(topic, "s", ack_group_time_ms=0)
    send_plain(client, topic, 3)
    for index, message in enumerate(drain(consumer.receive, 3)):
        consumer.acknowledge(message)
        assert consumer.pending_acks() == 0
        assert eventually(lambda index=index: shown(admin, topic) == set(range(index + 1)))


@pytest.mark.parametrize("wrong", [{"ack_group_time_ms": -1}, {"ack_group_time_ms": True}, {"max_ack_group_size": 0}])
def test_a_grouping_that_cannot_be_is_refused(client, topic, admin, wrong):
    """Before anything is opened: no subscription is left behind."""
    with pytest.raises(pulsar.InvalidUse):
        client.subscribe(topic, "s", **wrong)
    with pytest.raises(pulsar.AdminNotFound):
        admin.stats(topic)


@pytest.mark.parametrize("form", ["live", "deserialized", "rebuilt"])
def test_an_id_of_a_batch_acknowledges_its_message_only(client, topic, admin, form):
    """The entry counts as acknowledged when all its messages are, by ids of any form, and not before."""
    consumer = client.subscribe(topic, "s")
    send_batches(client, topic, 2)
    messages = drain(consumer.receive, 10)
    ids = [message.message_id() for message in messages]
    if form == "deserialized":
        ids = [MessageId.deserialize(one.serialize()) for one in ids]
    elif form == "rebuilt":
        ids = [MessageId(-1, one.ledger_id(), one.entry_id(), one.batch_index()) for one in ids]
    for one in ids[:4]:
        consumer.acknowledge(one)
    with pytest.raises(pulsar.AckNotConfirmed) as error:
        consumer.flush_acks(confirm=True, timeout_ms=300)
    assert error.value.missing == [one.to_text() for one in ids[:4]]
    assert shown(admin, topic) == set()
    consumer.acknowledge(ids[4])
    consumer.flush_acks(confirm=True)
    assert shown(admin, topic) == {0}
    consumer.acknowledge_cumulative(ids[7])
    consumer.acknowledge(ids[9])
    consumer.acknowledge(ids[8])
    consumer.flush_acks(confirm=True)
    assert shown(admin, topic) == {0, 1}


class TestBatchIndexes:
    """On a broker that keeps acknowledgements inside batches."""

    @pytest.fixture
    def broker(self, pulsar_broker_factory):
        """Such a broker."""
        return pulsar_broker_factory("batch-index-acks")

    @pytest.mark.parametrize("type_", TYPES)
    def test_acknowledged_messages_of_a_batch_do_not_come_again(self, client, topic, type_):
        """By live, stored and rebuilt ids alike; a confirmed flush keeps them over a new connection."""
        consumer = client.subscribe(topic, "s", type_, batch_index_ack_enabled=True)
        send_batches(client, topic, 2)
        ids = [message.message_id() for message in drain(consumer.receive, 10)]
        consumer.acknowledge(ids[1])
        consumer.acknowledge(MessageId.deserialize(ids[3].serialize()))
        consumer.acknowledge(MessageId(-1, ids[7].ledger_id(), ids[7].entry_id(), ids[7].batch_index()))
        consumer.flush_acks(confirm=True)
        consumer.close()
        consumer = client.subscribe(topic, "s", type_, batch_index_ack_enabled=True)
        again = drain(consumer.receive, 7)
        assert sorted(index_of(message) for message in again) == [0, 2, 4, 5, 6, 8, 9]
        consumer.acknowledge_many(again)
        consumer.flush_acks(confirm=True)
        consumer.close()
        assert drain(client.subscribe(topic, "s", type_).receive) == []

    @pytest.mark.parametrize("seed", range(2))
    @pytest.mark.parametrize("partitions", [0, 2])
    def test_whatever_is_received_anyhow_only_what_was_acknowledged_is(
        self, client, pulsar_topic_factory, broker, seed, partitions
    ):
        """Received one by one, many at once, by two consumers or again, and acknowledged through either: never more."""
        topic = pulsar_topic_factory(partitions=partitions, broker=broker)
        chance = random.Random(seed)
        send_batches(client, topic, 8, 7)
        left = set(range(56))
        for _ in range(3):
            consumers = [client.subscribe(topic, "s", SHARED, **EARLIEST, batch_index_ack_enabled=True) for _ in "ab"]
            got = []
            with contextlib.suppress(pulsar.Timeout):
                while len(got) < 60:
                    one = chance.choice(consumers)
                    how = chance.choice(["one", "one", "one", "many", "soon"])
                    if how == "one":
                        got.append(one.receive(300))
                    elif how == "many":
                        got += one.receive_many(chance.randrange(1, 9), 100)
                    else:
                        got.append(one.receive(50))
            for message in got:
                if index_of(message) in left and chance.random() < 0.7:
                    chance.choice(consumers).acknowledge(message)
                    left.discard(index_of(message))
            for consumer in consumers:
                consumer.flush_acks(confirm=True)
                consumer.close()
        again = drain(client.subscribe(topic, "s", SHARED).receive, len(left))
        assert {index_of(message) for message in again} == left


def test_what_cannot_be_confirmed_raises_and_is_kept(pulsar_fault_proxy, client_factory, broker, topic):
    """While the broker cannot be reached a confirmed flush raises; acknowledgements given then arrive afterwards."""
    proxy = pulsar_fault_proxy(broker)
    client = client_factory(broker, service_url=proxy.service_url)
    admin = client.context.admin_api()
    consumer = client.subscribe(topic, "s", SHARED)
    send_plain(client_factory(broker), topic, 20)
    messages = drain(consumer.receive, 20)
    consumer.acknowledge_many(messages[:5])
    proxy.refuse()
    proxy.cut()
    assert eventually(lambda: not consumer.is_connected())
    consumer.acknowledge_many(messages[5:10])
    with pytest.raises(pulsar.AckNotConfirmed):
        consumer.flush_acks(confirm=True, timeout_ms=200)
    assert consumer.pending_acks() >= 5
    proxy.accept()
    assert eventually(lambda: shown(admin, topic) == set(range(10)))
    assert consumer.pending_acks() == 0


@pytest.mark.parametrize("type_", [pulsar.ConsumerType.Exclusive, SHARED])
@pytest.mark.parametrize("grouping", [{}, {"ack_group_time_ms": 100}])
def test_a_connection_that_is_cut_amid_many_acknowledgements_loses_none(
    pulsar_fault_proxy, client_factory, broker, topic, type_, grouping
):
    """Single messages, acknowledged as fast as can be before, while and after the connection is lost, in any order."""
    proxy = pulsar_fault_proxy(broker)
    client = client_factory(broker, service_url=proxy.service_url)
    consumer = client.subscribe(topic, "s", type_, receiver_queue_size=5000, **grouping)
    for start in range(0, 3000, 1000):  # as many as a producer takes at once
        send_plain(client_factory(broker), topic, 1000, start)
    messages = drain(consumer.receive, 3000)
    assert len(messages) == 3000
    for message in messages[:1000]:
        consumer.acknowledge(message)
    for message in messages[1999:999:-1]:
        consumer.acknowledge(message)
    proxy.refuse()
    proxy.cut()
    for message in messages[2000:2500]:
        consumer.acknowledge(message)
    assert eventually(lambda: not consumer.is_connected())
    for message in messages[2500:]:
        consumer.acknowledge(message)
    proxy.accept()
    assert eventually(lambda: shown(client.context.admin_api(), topic) == set(range(3000)))


def test_a_cumulative_acknowledgement_of_a_lost_connection_arrives(pulsar_fault_proxy, client_factory, broker, topic):
    """Officially it is lost, and the messages that the broker delivers again are dropped as duplicates for good."""
    proxy = pulsar_fault_proxy(broker)
    client = client_factory(broker, service_url=proxy.service_url)
    consumer = client.subscribe(topic, "s")
    send_plain(client_factory(broker), topic, 10)
    messages = drain(consumer.receive, 10)
    proxy.refuse()
    proxy.cut()
    consumer.acknowledge_cumulative(messages[6])
    proxy.accept()
    assert eventually(lambda: shown(client.context.admin_api(), topic) == set(range(7)))


@pytest.mark.twin_on_demand
def test_a_cursor_that_an_operator_moved_back_is_followed(client, topic, admin):
    """What was acknowledged cumulatively is delivered again after a reset; the C++ client alone drops it."""
    consumer = client.subscribe(topic, "s", ack_group_time_ms=100)
    send_plain(client, topic, 10)
    messages = drain(consumer.receive, 10)
    consumer.acknowledge_cumulative(messages[8])
    consumer.flush_acks(confirm=True)
    time.sleep(2)  # what left just before a reset is sent again after it
    ledger_id = messages[0].message_id().ledger_id()
    admin.reset_cursor(topic, "s", Position(ledger_id, 2))
    again = drain(consumer.receive, 8, quiet_millis=1_000)
    assert {index_of(message) for message in again} >= set(range(2, 10))
    consumer.acknowledge_many(again)
    consumer.flush_acks(confirm=True)
    assert eventually(lambda: shown(admin, topic) == set(range(10)))  # nothing is taken back without coming again


def test_chunked_messages_leave_whole(client, topic, admin):
    """Whole messages, by the message and by stored ids, beside plain ones, with runs and without."""
    for grouping in ({}, {"ack_group_time_ms": 100}):
        big, small = client.create_producer(topic, chunking_enabled=True), client.create_producer(topic)
        consumer = client.subscribe(topic, "s", **grouping)
        for index in range(4):
            (small if index % 2 else big).send(payload(index, 20 if index % 2 else THREE_CHUNKS))
        messages = drain(consumer.receive, 4)
        consumer.acknowledge(messages[0])
        consumer.acknowledge(messages[1])
        consumer.acknowledge(MessageId.deserialize(messages[2].message_id().serialize()))
        consumer.flush_acks(confirm=True)
        assert admin.stats(topic, precise_backlog=True).subscriptions["s"].backlog_entries == 1
        consumer.acknowledge(messages[3])
        consumer.flush_acks(confirm=True)
        assert admin.stats(topic, precise_backlog=True).subscriptions["s"].backlog_entries == 0
        consumer.close()


def test_partitions_and_lists_are_confirmed_each(client, pulsar_topic_factory, broker, admin):
    """Every partition and every topic of a list has a cursor of its own, and all are flushed and confirmed."""
    parts, other = pulsar_topic_factory(partitions=3, broker=broker), pulsar_topic_factory(broker=broker)
    for what, topics in ((parts, [f"{parts}-partition-{one}" for one in range(3)]), ([parts, other], [other])):
        consumer = client.subscribe(what, "s", initial_position=pulsar.InitialPosition.Earliest)
        for one in [parts] * 9 + [other] * (not isinstance(what, str)):
            client.create_producer(one).send(b"0.")
        expected = 9 if isinstance(what, str) else 10
        messages = drain(consumer.receive, expected)
        consumer.acknowledge_many(messages[:-1])
        consumer.acknowledge(messages[-1].message_id())
        consumer.flush_acks(confirm=True)
        for name in topics:
            assert admin.stats(name, precise_backlog=True).subscriptions["s"].backlog_entries == 0
        consumer.close()


def test_a_scope_acknowledges_all_or_redelivers_all(client, topic, admin):
    """At the end of the block everything is on the cursor; an exception has everything delivered again."""
    consumer = client.subscribe(topic, "s", SHARED, negative_ack_redelivery_delay_ms=100)
    send_plain(client, topic, 10)

    def fail_over_four():
        with consumer.ack_scope():
            for _ in range(4):
                consumer.receive(10_000)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_over_four()
    assert len(drain(consumer.receive, 10)) == 10
    consumer.redeliver_unacknowledged_messages()
    with consumer.ack_scope(drain(consumer.receive, 10)) as messages:
        assert len(messages) == 10
    assert shown(admin, topic) == set(range(10))


def test_many_and_one_by_one(client, topic):
    """receive_many takes what is there, in order, and waits for the first only; a for loop ends when it is closed."""
    consumer = client.subscribe(topic, "s")
    assert consumer.receive_many(5, 50) == []
    send_plain(client, topic, 10)
    messages = []
    while len(messages) < 7:
        messages += consumer.receive_many(7 - len(messages), 10_000)
    for message in consumer:
        messages.append(message)
        if len(messages) == 10:
            break
    assert [index_of(message) for message in messages] == list(range(10))
    for wrong in (0, True, "5"):
        with pytest.raises(pulsar.InvalidUse):
            consumer.receive_many(wrong)
    waiter = threading.Thread(target=lambda: messages.extend(consumer))
    waiter.start()
    consumer.close()
    waiter.join(20)
    assert not waiter.is_alive()
    assert len(messages) == 10


def test_every_receive_goes_on_where_another_ended(client, topic, admin):
    """After a break every kind of receive goes on where the loop was; a scope acknowledges what it received alone."""
    consumer = client.subscribe(topic, "s", batch_index_ack_enabled=True)
    send_batches(client, topic, 60, 10)
    got = []
    for message in consumer:
        got.append(message)
        if len(got) == 50:
            break
    got += [consumer.receive(), consumer.receive(1_000), consumer.receive(50)]
    got += consumer.receive_many(7)
    with consumer.ack_scope(confirm=False) as _:
        got += [consumer.receive() for _ in range(10)]
        got += consumer.receive_many(13)
        got += consumer.batch_receive()
        inside = len(got)
    while len(got) < 600:
        got += consumer.receive_many(100, 10_000)
    assert [index_of(message) for message in got] == list(range(600))
    consumer.flush_acks(confirm=True)
    assert shown(admin, topic) == set(range(6, inside // 10))
    consumer.seek(MessageId.earliest)
    assert index_of(next(iter(consumer))) == 0
    consumer.seek(got[300].message_id())
    assert index_of(consumer.receive()) == 301


@pytest.mark.parametrize("type_", [pulsar.ConsumerType.Exclusive, SHARED])
def test_what_was_acknowledged_just_before_a_seek_comes_again(client, topic, type_):
    """Nothing that was sent before a seek is sent again when the consumer is back: it would skip what comes anew."""
    consumer = client.subscribe(topic, "s", type_)
    send_plain(client, topic, 100)
    for _ in range(8):
        for _ in range(100):
            consumer.acknowledge(consumer.receive(10_000))
        consumer.seek(MessageId.earliest)
        assert index_of(consumer.receive(10_000)) == 0
        consumer.seek(MessageId.earliest)


def test_nothing_prefetched_survives_a_seek(client, topic):
    """After a seek receive_many begins where the seek went, with nothing from before."""
    consumer = client.subscribe(topic, "s", start_message_id_inclusive=True)
    send_plain(client, topic, 30)
    first = [consumer.receive(10_000), *consumer.receive_many(1, 10_000)]
    consumer.seek(first[1].message_id())
    assert index_of(consumer.receive_many(1, 10_000)[0]) == 1


def test_threads_receive_and_acknowledge_beside_each_other(client, topic, admin):
    """Four threads on one consumer: each message is received once, and all are on the cursor."""
    consumer = client.subscribe(topic, "s", SHARED, ack_group_time_ms=100, max_ack_group_size=50)
    send_batches(client, topic, 100, 10)
    seen: list[int] = []

    def consume():
        while messages := consumer.receive_many(7, 1_000):
            for message in messages:
                seen.append(index_of(message))
                consumer.acknowledge(message)

    threads = [threading.Thread(target=consume) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    consumer.flush_acks(confirm=True)
    assert sorted(seen) == list(range(1000))
    assert shown(admin, topic) == set(range(100))


def test_listeners_acknowledge_in_groups_too(client, pulsar_topic_factory, broker, admin):
    """A listener's acknowledgements, also those of partitions, are the consumer's own."""
    topic = pulsar_topic_factory(partitions=2, broker=broker)
    heard: list[int] = []

    def listener(consumer, message):
        heard.append(index_of(message))
        consumer.acknowledge(message)

    consumer = client.subscribe(topic, "s", message_listener=listener, ack_group_time_ms=100)
    producer = client.create_producer(topic)
    for index in range(20):
        producer.send(payload(index, 20))
    assert eventually(lambda: len(heard) == 20)
    consumer.flush_acks(confirm=True)
    backlog = admin.partitioned_stats(topic).total.subscriptions["s"].backlog_entries
    assert backlog == 0


def test_a_closed_consumer_refuses(client, topic):
    """Acknowledging after close() raises instead of losing it silently."""
    consumer = client.subscribe(topic, "s")
    send_plain(client, topic, 1)
    message = consumer.receive(10_000)
    consumer.close()
    for use in (consumer.acknowledge, consumer.negative_acknowledge):
        with pytest.raises(pulsar.AlreadyClosed):
            use(message)


def test_a_refused_unsubscribe_keeps_what_was_said(client, topic):
    """What was acknowledged and refused before an unsubscribe() that fails, for another consumer is there, counts."""
    consumer = client.subscribe(
        topic, "s", SHARED, ack_group_time_ms=60_000, negative_ack_redelivery_delay_ms=2_000, receiver_queue_size=20
    )
    send_plain(client, topic, 20)
    messages = drain(consumer.receive, 20)
    consumer.acknowledge_many(messages[:15])
    for message in messages[15:]:
        consumer.negative_acknowledge(message)
    other = client.subscribe(topic, "s", SHARED)
    with pytest.raises(pulsar.PulsarException):
        consumer.unsubscribe()
    other.close()
    assert consumer.pending_acks() == 15
    assert sorted(map(index_of, drain(consumer.receive, 5))) == [15, 16, 17, 18, 19]
    consumer.close()
    assert sorted(map(index_of, drain(client.subscribe(topic, "s", SHARED).receive, 5))) == [15, 16, 17, 18, 19]


class TestRedelivery:
    """Negative acknowledgements and dead letters take whole messages, and only these."""

    @pytest.mark.parametrize("type_", TYPES)
    def test_chunked_and_batched_messages_come_again_whole(self, client, topic, type_):
        """What is refused comes again; what was acknowledged before does not, where entries are its own."""
        consumer = client.subscribe(topic, "s", type_, negative_ack_redelivery_delay_ms=100)
        send_batches(client, topic, 1)
        client.create_producer(topic, chunking_enabled=True).send(payload(5))
        client.create_producer(topic).send(payload(6, 20))
        messages = {index_of(message): message for message in drain(consumer.receive, 7)}
        consumer.acknowledge(messages[6])
        consumer.negative_acknowledge(messages[2])
        consumer.negative_acknowledge(messages[5].message_id())
        again = drain(consumer.receive, 6, quiet_millis=600)
        assert {index_of(message) for message in again} == {0, 1, 2, 3, 4, 5}

    def test_a_stream_of_nacks_does_not_starve_redelivery(self, client, topic):
        """Messages come again while others are refused every few milliseconds."""
        consumer = client.subscribe(topic, "s", SHARED, negative_ack_redelivery_delay_ms=100)
        send_plain(client, topic, 60)
        again = 0
        for message in drain(consumer.receive, 60):
            consumer.negative_acknowledge(message)
            again += len(consumer.receive_many(100, 10))
        assert again > 0

    def test_a_dead_letter_is_one_message_whole(self, client, topic, admin):
        """Of a batch only the refused message goes, of a chunked one all of it, each once, and is acknowledged here."""
        consumer = client.subscribe(
            topic,
            "s",
            SHARED,
            negative_ack_redelivery_delay_ms=100,
            dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(1, topic + "-dead", "letters"),
        )
        send_batches(client, topic, 1)
        client.create_producer(topic, chunking_enabled=True).send(payload(5), properties={"kept": "yes"})
        while messages := consumer.receive_many(100, 2_000):
            for message in messages:
                refuse = index_of(message) in (3, 5)
                (consumer.negative_acknowledge if refuse else consumer.acknowledge)(message)
        letters = drain(client.subscribe(topic + "-dead", "letters", SHARED).receive, 2)
        assert sorted(index_of(letter) for letter in letters) == [3, 5]
        whole = next(letter for letter in letters if index_of(letter) == 5)
        assert len(whole.data()) == THREE_CHUNKS
        assert whole.properties()["kept"] == "yes"
        assert eventually(lambda: not admin.stats(topic, precise_backlog=True).subscriptions["s"].backlog_entries)

    def test_dead_letters_need_no_receive(self, client, topic):
        """Messages that come once more than allowed go to the dead letter topic while nobody receives."""
        policy = pulsar.ConsumerDeadLetterPolicy(1, topic + "-dead")
        consumer = client.subscribe(topic, "s", SHARED, dead_letter_policy=policy)
        dead = client.subscribe(topic + "-dead", "letters")
        send_plain(client, topic, 3)
        for _ in range(2):
            drain(consumer.receive, 3)
            consumer.redeliver_unacknowledged_messages()
        assert [index_of(letter) for letter in drain(dead.receive, 3)] == [0, 1, 2]
        with pytest.raises(pulsar.Timeout):
            consumer.receive(100)

    @pytest.mark.twin_on_demand
    def test_a_chunked_message_nobody_acknowledges_in_time_comes_again(self, client, topic):
        """After unacked_messages_timeout_ms it is delivered whole on the same connection, on a Shared subscription."""
        consumer = client.subscribe(topic, "s", SHARED, unacked_messages_timeout_ms=10_000)
        producer = client.create_producer(topic, chunking_enabled=True)
        producer.send(payload(0))
        producer.send(payload(1))
        first = drain(consumer.receive, 2)
        consumer.acknowledge(first[0])
        assert [index_of(message) for message in drain(consumer.receive, 1, quiet_millis=1_000)] == [1]


@pytest.mark.blocking_only("a forked child has no event loop to await anything in")
def test_a_fork_beside_pending_acknowledgements(client, topic, admin):
    """The child refuses and ends, whatever the parent's thread was doing; the parent's acknowledgements arrive."""
    consumer = client.subscribe(topic, "s")
    send_plain(client, topic, 10)
    for message in drain(consumer.receive, 10):
        consumer.acknowledge(message)
    child = os.fork()
    if child == 0:
        refused = 0
        for use in (consumer.pending_acks, consumer.flush_acks, lambda: consumer.acknowledge(message)):
            try:
                use()
            except pulsar.ForkedClientError:
                refused += 1
        try:
            client.close()
        except pulsar.ForkedClientError:
            refused += 1
        os._exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 4
    consumer.flush_acks(confirm=True)
    assert shown(admin, topic) == set(range(10))
