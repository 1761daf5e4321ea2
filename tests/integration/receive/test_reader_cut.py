"""Readers read each message once through lost connections, from any start, and with any receiver queue."""

from __future__ import annotations

import queue
from itertools import islice

import pytest
from chunked import THREE_CHUNKS, drain, eventually, index_of, payload
from ways import OWN_PROXY

from pulsar_ext import MessageId, Timeout
from pulsar_ext.key_shared.hash_ranges import KeyHashRanges

BOTH_CLIENTS = True
pytestmark = OWN_PROXY

KINDS = "cpcbbcpccbpc"
"""Messages that are sent: plain ones, batches of three, and chunked ones."""


def send_kinds(client, topic, kinds):
    """Send messages of these kinds; return their number."""
    alone = client.create_producer(topic, chunking_enabled=True)
    batched = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=60_000)
    count = 0
    for kind in kinds:
        if kind == "b":
            for index in range(count, count + 3):
                batched.send_async(payload(index, 20), None, partition_key="k")
            batched.flush()
        else:
            alone.send(payload(count, THREE_CHUNKS if kind == "c" else 20), partition_key="k")
        count += 3 if kind == "b" else 1
    return count


def cut(proxy, admin, topic):
    """Cut the connection of the only reader, and wait for the next one."""
    before = addresses(admin, topic)
    proxy.cut()
    assert eventually(lambda: addresses(admin, topic) - before)


def addresses(admin, topic):
    """Return the addresses of the connected readers."""
    every = admin.stats(topic).subscriptions.values()
    return {one["address"] for subscription in every for one in subscription.raw["consumers"]}


OPENINGS = {
    "reader": lambda client, topic: client.create_reader(topic, MessageId.earliest).read_next,
    "short queue": lambda client, topic: (
        client.create_reader(topic, MessageId.earliest, receiver_queue_size=1).read_next
    ),
    "key ranges": lambda client, topic: (
        client.create_reader(topic, MessageId.earliest, key_hash_ranges=KeyHashRanges.full()).read_next
    ),
    "several topics": lambda client, topic: client.create_reader([topic], MessageId.earliest).read_next,
}


@pytest.mark.core(each="way", awaited=True, slow="connections are cut and made again")
@pytest.mark.parametrize("way", [*OPENINGS])
@pytest.mark.parametrize("read", [0, 3])
def test_cut_connections_skip_and_repeat_nothing(
    client_factory, client, admin, broker, topic, pulsar_fault_proxy, way, read
):
    """A reader whose connection is cut while messages of every kind wait in its queue reads each of them once."""
    count, proxy = send_kinds(client, topic, KINDS), pulsar_fault_proxy(broker)
    read_next = OPENINGS[way](client_factory(broker, service_url=proxy.service_url), topic)
    found = [index_of(read_next(10_000)) for _ in range(read)]
    for size in (6, count):
        cut(proxy, admin, topic)
        found += [index_of(read_next(10_000)) for _ in range(size - len(found))]
    assert found == [*range(count)]
    with pytest.raises(Timeout):
        read_next(500)


def test_listener_gets_each_message_once(client_factory, client, admin, broker, topic, pulsar_fault_proxy):
    """A listener that is called slowly, while connections are cut, gets each message once and in order."""
    count, proxy, arrived, goes_on = send_kinds(client, topic, KINDS), pulsar_fault_proxy(broker), [], queue.Queue()

    def listen(_, message):
        arrived.append(index_of(message))
        goes_on.get()

    client_factory(broker, service_url=proxy.service_url).create_reader(
        topic, MessageId.earliest, reader_listener=listen
    )
    for size in (1, 6):
        for _ in range(size):
            goes_on.put(None)
        assert eventually(lambda size=size: len(arrived) >= size)
        cut(proxy, admin, topic)
    for _ in range(2 * count):
        goes_on.put(None)
    assert eventually(lambda: len(arrived) >= count)
    assert arrived == [*range(count)]


@pytest.mark.core(awaited=True, slow="a connection is cut and made again")
def test_skipped_last_message_is_read(client_factory, client, admin, broker, topic, pulsar_fault_proxy):
    """The last message of a topic, in chunks, that waits in the queue of a cut connection arrives without another."""
    send_kinds(client, topic, "pc")
    proxy = pulsar_fault_proxy(broker)
    reader = client_factory(broker, service_url=proxy.service_url).create_reader(topic, MessageId.earliest)
    assert index_of(reader.read_next(10_000)) == 0
    client.create_reader(topic, MessageId.latest).close()  # another connection's answer: what was sent has arrived
    cut(proxy, admin, topic)
    assert reader.has_message_available()
    assert index_of(reader.read_next(20_000)) == 1
    assert not reader.has_message_available()


def test_interleaved_chunks_are_read(client_factory, client, admin, broker, topic, pulsar_fault_proxy):
    """Messages whose chunks are between those of others are read once through a cut connection."""
    producers = [client.create_producer(topic, chunking_enabled=True) for _ in range(4)]
    for index in range(40):
        producers[index % 4].send_async(payload(index), None)
    for producer in producers:
        producer.flush()
    order = [index_of(one) for one in drain(client.create_reader(topic, MessageId.earliest).read_next, 40)]
    proxy, found = pulsar_fault_proxy(broker), []
    reader = client_factory(broker, service_url=proxy.service_url).create_reader(topic, MessageId.earliest)
    for size in (1, 7, 20, 40):
        found += [index_of(reader.read_next(10_000)) for _ in range(size - len(found))]
        cut(proxy, admin, topic)
    found += map(index_of, drain(reader.read_next, quiet_millis=3_000))
    assert found == order


@pytest.mark.core
@pytest.mark.parametrize("inclusive", [True, False])
@pytest.mark.parametrize("size", [0, 1, 1000])
def test_readers_begin_at_every_message_with_any_queue(client, topic, inclusive, size):
    """A reader begins at, or after, a message of any kind after one of any kind, whatever its receiver queue."""
    count = send_kinds(client, topic, "pbpcbbccpp")
    first = client.create_reader(topic, MessageId.earliest)
    ids = [first.read_next(10_000).message_id() for _ in range(count)]
    for index, start in enumerate(ids):
        reader = client.create_reader(topic, start, start_message_id_inclusive=inclusive, receiver_queue_size=size)
        wanted = [*range(index + (not inclusive), count)]
        found = [index_of(reader.read_next(10_000)) for _ in islice(wanted, 3)]
        assert found == wanted[:3], (index, found)
        reader.seek(start)
        assert [index_of(reader.read_next(10_000)) for _ in wanted[:1]] == wanted[:1]
        reader.close()


@pytest.mark.core(each="kind", slow="a connection is cut and made again")
@pytest.mark.parametrize("kind", ["p", "b", "c"])
def test_inclusive_reader_ends_after_a_cut(client_factory, client, admin, broker, topic, pulsar_fault_proxy, kind):
    """After a lost connection, a reader with an inclusive start repeats no message, and reports none."""
    count, proxy = send_kinds(client, topic, 2 * kind), pulsar_fault_proxy(broker)
    start = client.create_reader(topic, MessageId.earliest).read_next(10_000).message_id()
    reader = client_factory(broker, service_url=proxy.service_url).create_reader(
        topic, start, start_message_id_inclusive=True
    )
    assert [index_of(reader.read_next(10_000)) for _ in range(count)] == [*range(count)]
    cut(proxy, admin, topic)
    assert not reader.has_message_available()
    with pytest.raises(Timeout):
        reader.read_next(500)
