"""What is fetched ahead for speed: every kind of receive finds it, and seeks, redeliveries and closes drop it."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from itertools import islice

import pytest
from chunked import acknowledged, drain, eventually, index_of, payload
from prefetched import COUNT, fetch_ahead, fill, is_ahead, rest_of

import pulsar_ext as pulsar
from pulsar_ext import MessageId
from pulsar_ext.receive.order import Transition

SHARED = pulsar.ConsumerType.Shared


@pytest.mark.core
@pytest.mark.parametrize("at_once", [0, 1, 90, 100, 333])
def test_whoever_is_fast_has_messages_ahead_and_gets_them_in_order(client, topic, at_once):
    """At full speed all the time, received, iterated or in lists, and each comes once, in its place."""
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
        looked, found = looked + 1, found + (is_ahead(consumer) > 0)
    assert data == [payload(index, 20) for index in range(count)]
    assert found > looked / 10


@pytest.mark.parametrize("how", ["receive", "loop", "many"])
def test_whoever_is_slow_has_none_ahead(client, topic, how):
    """Messages that take a millisecond each stay in the client's queue."""
    consumer = client.subscribe(topic, "s")
    fill(client, topic)
    messages = iter(consumer)
    take = {"receive": consumer.receive, "loop": lambda: next(messages), "many": lambda: consumer.receive_many(1)}[how]
    for _ in range(900):
        take()
        time.sleep(0.001)
        assert not is_ahead(consumer)


def test_whoever_becomes_slow_has_none_ahead_soon(client, topic):
    """What was fetched at full speed is taken slowly, and then nothing more is fetched."""
    consumer = client.subscribe(topic, "s", receiver_queue_size=5_000)
    fill(client, topic, 5_000)
    for _ in range(3_000):
        consumer.receive(10_000)
    for turn in range(800):
        consumer.receive(10_000)
        time.sleep(0.001)
        assert turn < 400 or not is_ahead(consumer)


def test_every_receive_finds_what_is_ahead(client, topic):
    """Each kind of receive goes on where another ended, with messages ahead or without, and scopes hear them all."""
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
def test_nothing_ahead_survives_a_seek(client, topic, type_):
    """After a seek comes what is behind its position, all of it, and nothing that was fetched before."""
    consumer = client.subscribe(topic, "s", type_)
    fill(client, topic)
    first = consumer.receive(10_000)
    fetch_ahead(consumer)
    consumer.seek(first.message_id())
    assert [index_of(message) for message in consumer.receive_many(1, 10_000)] == [1]
    fetch_ahead(consumer)
    consumer.seek(MessageId.earliest)
    assert rest_of(consumer) == list(range(COUNT))


def test_what_is_ahead_stays_if_the_cursor_does_not_move(client, topic):
    """A seek that is refused loses nothing."""
    consumer = client.subscribe(topic, "s")
    fill(client, topic)
    fetch_ahead(consumer)
    with pytest.raises(pulsar.MessageIdNotFound):
        consumer.seek(MessageId(-1, 10**6, 1, -1))
    with pytest.raises(ZeroDivisionError), consumer._order.passing(Transition.SEEK):
        _ = 1 / 0
    assert is_ahead(consumer)
    assert rest_of(consumer) == list(range(COUNT))


def test_what_is_ahead_stays_if_the_subscription_does(client, topic):
    """An unsubscribe() that is refused, for another consumer is there, loses nothing."""
    consumer = client.subscribe(topic, "s", SHARED)
    fill(client, topic, size=1)
    fetch_ahead(consumer)
    other = client.subscribe(topic, "s", SHARED)
    with pytest.raises(pulsar.PulsarException):
        consumer.unsubscribe()
    assert is_ahead(consumer)
    assert sorted(rest_of(consumer) + rest_of(other)) == list(range(COUNT))


def test_nothing_is_fetched_while_the_cursor_moves(client, topic):
    """Another thread's loop goes on beside a seek: what it would fetch then is from before."""
    consumer = client.subscribe(topic, "s")
    fill(client, topic)
    assert index_of(consumer.receive(10_000)) == 0
    with consumer._order.passing(Transition.SEEK):
        consumer._prefetch.fetch()
        assert not is_ahead(consumer)
        assert index_of(consumer.receive(10_000)) == 1


def test_threads_that_fetch_at_once_lose_nothing(client, topic):
    """Four threads fetch and take what is ahead, as fast as they can: each message is taken by one of them."""
    count = 20_000
    consumer = client.subscribe(topic, "s", receiver_queue_size=count)
    fill(client, topic, count)
    time.sleep(1)
    ahead = consumer._prefetch
    taken = [[] for _ in range(4)]

    def fetch(mine):
        for _ in range(count // 20):
            ahead.fetch()
            mine.extend(islice(ahead._kept, 7))
            time.sleep(0)

    threads = [threading.Thread(target=fetch, args=(mine,)) for mine in taken]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    left = [index_of(message) for message in drain(consumer.receive)]
    assert sorted(left + [int(inner.data().split(b".")[0]) for mine in taken for inner in mine]) == list(range(count))


@pytest.mark.parametrize("type_", [pulsar.ConsumerType.Exclusive, SHARED])
def test_a_redelivery_brings_what_was_ahead(client, topic, type_):
    """Nothing is lost by redeliver_unacknowledged_messages(), and nothing acknowledged comes again."""
    consumer = client.subscribe(topic, "s", type_, batch_index_ack_enabled=True)
    fill(client, topic, size=10)
    for message in consumer.receive_many(100, 10_000):
        consumer.acknowledge(message)
    fetch_ahead(consumer)
    consumer.redeliver_unacknowledged_messages()
    assert not is_ahead(consumer)
    left = rest_of(consumer)
    assert set(range(100, COUNT)) <= set(left)


@pytest.mark.parametrize("type_", [pulsar.ConsumerType.Exclusive, SHARED])
def test_a_refused_message_comes_again_beside_those_ahead(client, topic, type_):
    """Negative acknowledgements before and behind a fetch: all others come, and the refused ones once more."""
    consumer = client.subscribe(topic, "s", type_, negative_ack_redelivery_delay_ms=100)
    fill(client, topic, size=1)
    seen = Counter()
    first = consumer.receive_many(50, 10_000)
    seen.update(index_of(message) for message in first)
    refused = first[:3]
    consumer.acknowledge_many(first[3:])
    for message in refused:
        consumer.negative_acknowledge(message)
    while len(seen) < COUNT or any(seen[index_of(message)] < 2 for message in refused):
        consumer._prefetch.fetch()
        messages = consumer.receive_many(80, 10_000)
        assert messages
        seen.update(index_of(message) for message in messages)
        consumer.acknowledge_many(messages)
    assert set(seen) == set(range(COUNT))


def test_a_closed_consumer_leaves_what_was_ahead_to_the_next(client, topic):
    """On Shared the next consumer gets all that was not acknowledged, and nothing else."""
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


def test_a_loop_in_which_others_receive_goes_on_in_order(client, topic):
    """Whatever receives, or fetches ahead, in the midst of a loop: the loop goes on behind it."""
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


def test_what_is_acknowledged_while_messages_are_ahead_is_on_the_cursor(client, topic, admin):
    """Iterated at full speed and acknowledged but for some: the cursor shows these as holes and nothing else."""
    consumer = client.subscribe(topic, "s", receiver_queue_size=20_000)
    fill(client, topic, 20_000, size=10)
    left_out = {random.randrange(2_000) for _ in range(50)}
    messages = iter(consumer)
    for index in range(20_000):
        message = next(messages)
        if index % 1_000 == 500:
            fetch_ahead(consumer)
        if index // 10 not in left_out or index % 10 == 5:
            consumer.acknowledge(message)
    consumer.flush_acks()
    entries = lambda: {position.entry_id for position in acknowledged(admin, topic, "s")}  # noqa: E731
    eventually(lambda: entries() == set(range(2_000)) - left_out)
    assert entries() == set(range(2_000)) - left_out


def test_messages_are_numbered_until_one_is_refused(client, topic):
    """While a batch is acknowledged, in a scope as outside; after a negative acknowledgement in a scope never again."""
    consumer = client.subscribe(topic, "s", negative_ack_redelivery_delay_ms=60_000)
    fill(client, topic, COUNT)

    def numbers():
        messages = [consumer.receive(10_000), *consumer.receive_many(10, 10_000), next(iter(consumer))]
        consumer.acknowledge_many(messages)
        return [message.number for message in messages]

    numbers()
    found = numbers()
    with consumer.ack_scope(confirm=False):
        found += numbers()
    found += numbers()
    assert found[0] > 0
    assert found == sorted(set(found))
    with consumer.ack_scope(confirm=False):
        consumer.negative_acknowledge(consumer.receive(10_000))
    assert not any(numbers())
    assert not any(numbers())


def test_what_another_thread_fetched_is_not_behind_what_came(client, topic):
    """One thread fetches while another waits: what that one gets next may be from before, and its numbers show it."""
    consumer = client.subscribe(topic, "s")
    fill(client, topic, COUNT)
    consumer.acknowledge(consumer.receive(10_000))
    before = [consumer.receive(10_000).number for _ in range(2)][1]
    thread = threading.Thread(target=consumer._prefetch.fetch)
    thread.start()
    thread.join(20)
    assert is_ahead(consumer)
    messages = [consumer.receive(10_000), *consumer.receive_many(2)]
    assert 0 < before < messages[0].number - 1
    assert messages[1].number < messages[2].number - 1


@pytest.mark.core
def test_whoever_acknowledges_has_messages_ahead_again(client, topic):
    """Messages are looked at singly after the first acknowledgement, and fetched ahead again when that has ended."""
    count, found = 20_000, 0
    consumer = client.subscribe(topic, "s", receiver_queue_size=2_000)
    fill(client, topic, count)
    for index in range(count):
        consumer.acknowledge(consumer.receive(10_000))
        found += index % 50 == 0 and index > count / 2 and is_ahead(consumer) > 0
    assert found


@pytest.mark.core
def test_what_was_fetched_reads_as_officially(client, topic):
    """Each field, the id and its acknowledgement are those of the binding's message, and what is left comes again."""
    producer = client.create_producer(topic, batching_enabled=True, batching_max_messages=50)
    for index in range(300):
        options = {"partition_key": f"clé {index % 3}", "ordering_key": "o", "event_timestamp": index + 1}
        producer.send_async(b"\x00%d" % index, None, properties={"ü": str(index)}, **options)
    producer.flush()
    consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
    assert eventually(consumer._prefetch.fetch)
    messages = consumer.receive_many(consumer.fetched_ahead())
    fields = ("data", "properties", "partition_key", "ordering_key", "topic_name", "producer_name")
    fields += ("publish_timestamp", "event_timestamp", "redelivery_count", "has_null_value")
    for message in messages:
        assert [getattr(message, name)() for name in fields] == [getattr(message.inner, name)() for name in fields]
        assert message.message_id().serialize() == message.inner.message_id().serialize()
    consumer.acknowledge_many(messages[:50])
    consumer.close()
    rest = client.subscribe(topic, "s").receive_many(1, 10_000)
    assert rest[0].event_timestamp() == 51
