"""Prefetched messages: every kind of receive uses them, and seeks, redeliveries and closes drop them."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from itertools import islice

import pytest
from chunked import acknowledged, drain, eventually, index_of, payload
from prefetched import COUNT, fetch_ahead, fill, prefetched_count, rest_of

import pulsar_ext as pulsar
from pulsar_ext import MessageId
from pulsar_ext._native.core import IS_USED
from pulsar_ext.receive import prefetch
from pulsar_ext.receive.order import Transition

pytestmark = pytest.mark.skipif(not IS_USED, reason="messages are prefetched by the native core only")
SHARED = pulsar.ConsumerType.Shared


@pytest.mark.core
@pytest.mark.parametrize("at_once", [0, 1, 90, 100, 333])
def test_fast_consumer_prefetches_in_order(client, topic, at_once):
    """At full speed messages are prefetched, and each arrives once, in order, in every kind of receive."""
    count, looked, found = 40_000, 0, 0
    consumer = client.subscribe(topic, "s", receiver_queue_size=50_000)
    fill(client, topic, count)
    messages = iter(consumer)
    data = []
    while len(data) < count:
        if at_once == 0:
            data += [consumer.receive().data() for _ in range(50)]
        elif at_once == 1:
            data += [next(messages).data() for _ in range(50)]
        else:
            data += [message.data() for message in consumer.receive_many(at_once, 10_000)]
        looked, found = looked + 1, found + (prefetched_count(consumer) > 0)
    assert data == [payload(index, 20) for index in range(count)]
    assert found > looked / 10


@pytest.mark.parametrize("how", ["receive", "loop", "many"])
def test_slow_consumer_does_not_prefetch(client, topic, how):
    """Messages handled in a millisecond each stay in the client's queue."""
    consumer = client.subscribe(topic, "s")
    fill(client, topic)
    messages = iter(consumer)
    take = {"receive": consumer.receive, "loop": lambda: next(messages), "many": lambda: consumer.receive_many(1)}[how]
    for _ in range(900):
        take()
        time.sleep(0.001)
        assert not prefetched_count(consumer)


def test_prefetch_stops_when_consumer_slows(client, topic):
    """Prefetched messages are received slowly, and then no more are fetched."""
    consumer = client.subscribe(topic, "s", receiver_queue_size=5_000)
    fill(client, topic, 5_000)
    for _ in range(3_000):
        consumer.receive(10_000)
    for turn in range(800):
        consumer.receive(10_000)
        time.sleep(0.001)
        assert turn < 400 or not prefetched_count(consumer)


def test_every_receive_uses_prefetched_messages(client, topic):
    """Each kind of receive continues after another, with or without prefetched messages, and scopes record all."""
    consumer = client.subscribe(topic, "s")
    fill(client, topic, 3_000, size=1)
    got = []
    for message in consumer:
        got.append(message)
        if len(got) == 5:
            break
    kinds = [
        lambda: [consumer.receive()],
        lambda: [consumer.receive(1_000)],
        lambda: [consumer.receive(50)],
        lambda: consumer.receive_many(7),
        lambda: [next(iter(consumer))],
    ]
    while len(got) < 2_000:
        fetch_ahead(consumer)
        for _ in range(60):
            got += random.choice(kinds)()
    fetch_ahead(consumer)
    with consumer.ack_scope() as _:
        before = len(got)
        for _ in range(60):
            got += random.choice(kinds)()
        got += consumer.batch_receive()
        after = len(got)
    while len(got) < 3_000:
        got += consumer.receive_many(100, 10_000)
    assert [index_of(message) for message in got] == list(range(3_000))
    consumer.close()
    again = client.subscribe(topic, "s")
    assert rest_of(again) == [*range(before), *range(after, 3_000)]


@pytest.mark.core
@pytest.mark.parametrize("type_", [pulsar.ConsumerType.Exclusive, SHARED])
def test_seek_discards_prefetched_messages(client, topic, type_):
    """After a seek all messages from its target on arrive, and none that was prefetched before."""
    consumer = client.subscribe(topic, "s", type_)
    fill(client, topic)
    first = consumer.receive(10_000)
    fetch_ahead(consumer)
    consumer.seek(first.message_id())
    assert [index_of(message) for message in consumer.receive_many(1, 10_000)] == [1]
    fetch_ahead(consumer)
    consumer.seek(MessageId.earliest)
    assert rest_of(consumer) == list(range(COUNT))


def test_failed_seek_keeps_prefetched_messages(client, topic):
    """A seek that raises loses no prefetched message."""
    consumer = client.subscribe(topic, "s")
    fill(client, topic)
    fetch_ahead(consumer)
    with pytest.raises(pulsar.MessageIdNotFound):
        consumer.seek(MessageId(-1, 10**6, 1, -1))
    with pytest.raises(ZeroDivisionError), consumer._order.run_transition(Transition.SEEK):
        _ = 1 / 0
    assert prefetched_count(consumer)
    assert rest_of(consumer) == list(range(COUNT))


def test_failed_unsubscribe_keeps_prefetched_messages(client, topic):
    """An unsubscribe() that the broker rejects because of another consumer loses no prefetched message."""
    consumer = client.subscribe(topic, "s", SHARED)
    fill(client, topic, size=1)
    fetch_ahead(consumer)
    other = client.subscribe(topic, "s", SHARED)
    with pytest.raises(pulsar.PulsarException):
        consumer.unsubscribe()
    assert prefetched_count(consumer)
    assert sorted(rest_of(consumer) + rest_of(other)) == list(range(COUNT))


def test_nothing_is_prefetched_while_the_cursor_moves(client, topic):
    """Nothing is prefetched by another thread's loop during a seek, as it would be outdated."""
    consumer = client.subscribe(topic, "s")
    fill(client, topic)
    assert index_of(consumer.receive(10_000)) == 0
    with consumer._order.run_transition(Transition.SEEK):
        consumer._prefetch.fetch(400)
        assert not prefetched_count(consumer)
        assert index_of(consumer.receive(10_000)) == 1


def test_concurrent_fetches_lose_no_message(client, topic):
    """Four threads fetch and receive at full speed, and each message is received by one of them."""
    count = 20_000
    consumer = client.subscribe(topic, "s", receiver_queue_size=count)
    fill(client, topic, count)
    time.sleep(1)
    ahead = consumer._prefetch
    taken = [[] for _ in range(4)]

    def fetch(mine):
        for _ in range(count // 20):
            ahead.fetch(250)
            mine.extend(islice(ahead._prefetched, 7))
            time.sleep(0)

    threads = [threading.Thread(target=fetch, args=(mine,)) for mine in taken]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    left = [index_of(message) for message in drain(consumer.receive)]
    assert sorted(left + [int(inner.data().split(b".")[0]) for mine in taken for inner in mine]) == list(range(count))


@pytest.mark.parametrize("type_", [pulsar.ConsumerType.Exclusive, SHARED])
def test_redelivery_includes_prefetched_messages(client, topic, type_):
    """Prefetched messages are redelivered by redeliver_unacknowledged_messages()."""
    consumer = client.subscribe(topic, "s", type_, batch_index_ack_enabled=True)
    fill(client, topic, size=10)
    for message in consumer.receive_many(100, 10_000):
        consumer.acknowledge(message)
    fetch_ahead(consumer)
    consumer.redeliver_unacknowledged_messages()
    assert not prefetched_count(consumer)
    left = rest_of(consumer)
    assert set(range(100, COUNT)) <= set(left)


@pytest.mark.parametrize("type_", [pulsar.ConsumerType.Exclusive, SHARED])
def test_nacked_messages_are_redelivered_with_prefetch(client, topic, type_):
    """With nacks before and after a fetch, all others arrive, and the nacked ones are redelivered."""
    consumer = client.subscribe(topic, "s", type_, negative_ack_redelivery_delay_ms=100)
    fill(client, topic, size=1)
    seen = Counter()
    first = consumer.receive_many(50, 10_000)
    seen.update(index_of(message) for message in first)
    nacked = first[:3]
    consumer.acknowledge_many(first[3:])
    for message in nacked:
        consumer.negative_acknowledge(message)
    while len(seen) < COUNT or any(seen[index_of(message)] < 2 for message in nacked):
        consumer._prefetch.fetch(400)
        messages = consumer.receive_many(80, 10_000)
        assert messages
        seen.update(index_of(message) for message in messages)
        consumer.acknowledge_many(messages)
    assert set(seen) == set(range(COUNT))


def test_close_returns_prefetched_messages_to_the_broker(client, topic):
    """On Shared the next consumer gets exactly the unacknowledged messages."""
    consumer = client.subscribe(topic, "s", SHARED)
    fill(client, topic, size=1)
    taken = consumer.receive_many(100, 10_000)
    consumer.acknowledge_many(taken)
    fetch_ahead(consumer)
    consumer.close()
    for use in (consumer.receive, consumer.receive_many, consumer.batch_receive):
        with pytest.raises(pulsar.AlreadyClosed):
            use()
    assert list(consumer) == []
    again = client.subscribe(topic, "s", SHARED)
    assert sorted(rest_of(again)) == list(range(len(taken), COUNT))


def test_loop_with_nested_receives_keeps_the_order(client, topic):
    """A loop continues after the receives and fetches made inside it."""
    consumer = client.subscribe(topic, "s", receiver_queue_size=20_000)
    fill(client, topic, 20_000)
    got = []
    for message in consumer:
        got.append(message)
        what = random.randrange(300)
        if what == 0:
            fetch_ahead(consumer)
        elif what < 4:
            got += consumer.receive_many(random.choice((7, 70, 700)))
        elif what < 6:
            got += [consumer.receive(), next(iter(consumer))]
        elif what == 6:
            consumer.acknowledge(message)
        if len(got) > 19_000:
            break
    assert [index_of(message) for message in got] == list(range(len(got)))


def test_acks_during_prefetch_reach_the_cursor(client, topic, admin):
    """Messages acknowledged at full speed are acknowledged on the cursor, with the skipped ones as holes."""
    consumer = client.subscribe(topic, "s", receiver_queue_size=20_000)
    fill(client, topic, 20_000, size=10)
    skipped = {random.randrange(2_000) for _ in range(50)}
    messages = iter(consumer)
    for index in range(20_000):
        message = next(messages)
        if index % 1_000 == 500:
            fetch_ahead(consumer)
        if index // 10 not in skipped or index % 10 == 5:
            consumer.acknowledge(message)
    consumer.flush_acks()
    entries = lambda: {position.entry_id for position in acknowledged(admin, topic, "s")}  # noqa: E731
    eventually(lambda: entries() == set(range(2_000)) - skipped)
    assert entries() == set(range(2_000)) - skipped


@pytest.mark.core
@pytest.mark.parametrize("how", ["receive", "loop"])
@pytest.mark.parametrize("partitions", [0, 3])
def test_screened_messages_are_prefetched(client, pulsar_topic_factory, broker, monkeypatch, how, partitions):
    """New messages are prefetched while acknowledged ones may be redelivered, and none is screened."""
    monkeypatch.setattr(prefetch, "_FAST_SECONDS", 1.0)
    topic = pulsar_topic_factory(broker=broker, **({"partitions": partitions} if partitions else {}))
    count = 15_000
    consumer = client.subscribe(topic, "s", receiver_queue_size=3_000)
    fill(client, topic, count)
    receive = consumer.receive if how == "receive" else iter(consumer).__next__
    got = [receive()]
    time.sleep(0.2)  # the connection may have been replaced during this
    consumer.acknowledge(got[0])
    assert consumer._order.is_screening
    screened, prefetched = 0, 0
    while len(got) < count:
        got.append(receive())
        screened += consumer._order.is_screening
        prefetched += consumer._order.is_screening and prefetched_count(consumer) > 0
        assert not consumer._redelivery_filter.holds
    assert sorted(map(index_of, got)) == list(range(count))
    assert screened > 3_000
    assert prefetched > screened / 2


@pytest.mark.core
def test_prefetch_resumes_after_the_first_acknowledgement(client, topic):
    """Messages are prefetched after the first acknowledgement too."""
    count, found = 20_000, 0
    consumer = client.subscribe(topic, "s", receiver_queue_size=2_000)
    fill(client, topic, count)
    for index in range(count):
        consumer.acknowledge(consumer.receive(10_000))
        found += index % 50 == 0 and index > count / 2 and prefetched_count(consumer) > 0
    assert found


@pytest.mark.core
def test_prefetched_messages_equal_official_ones(client, topic):
    """Fields, ids and acknowledgements of prefetched messages are the official ones; the rest is redelivered."""
    producer = client.create_producer(topic, batching_enabled=True, batching_max_messages=50)
    for index in range(300):
        options = {"partition_key": f"clé {index % 3}", "ordering_key": "o", "event_timestamp": index + 1}
        producer.send_async(b"\x00%d" % index, None, properties={"ü": str(index)}, **options)
    producer.flush()
    consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
    messages = []
    while len(messages) < 50:
        assert eventually(lambda: consumer._prefetch.fetch(400))
        messages += consumer.receive_many(consumer.fetched_ahead())
    fields = ("data", "properties", "partition_key", "ordering_key", "topic_name", "producer_name")
    fields += ("publish_timestamp", "event_timestamp", "redelivery_count", "has_null_value")
    for message in messages:
        assert [getattr(message, name)() for name in fields] == [getattr(message.inner, name)() for name in fields]
        assert message.message_id().serialize() == message.inner.message_id().serialize()
    consumer.acknowledge_many(messages[:50])
    consumer.close()
    rest = client.subscribe(topic, "s").receive_many(1, 10_000)
    assert rest[0].event_timestamp() == 51
