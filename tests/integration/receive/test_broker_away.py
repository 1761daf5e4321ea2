"""A consumer that is reopened while the broker cannot be reached: receives wait for it, as officially."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading

import pytest
from acked import send_plain
from chunked import eventually, index_of
from reach import Reach

import pulsar_ext as pulsar
import pulsar_ext.asyncio
from pulsar_ext.testing import FaultProxy

AWAY_SECONDS = 9.0
COUNT = 3


def _receive_many(consumer):
    while True:
        yield from consumer.receive_many(1, 500)


def _batches(consumer):
    while True:
        yield from consumer.batch_receive()


WAYS = {
    "receive": lambda consumer: (consumer.receive() for _ in itertools.count()),
    "receive with a timeout": lambda consumer: (consumer.receive(30_000) for _ in itertools.count()),
    "receive_many": _receive_many,
    "batch_receive": _batches,
    "for": iter,
}


@contextlib.contextmanager
def silent_broker_on_reopen(proxy, consumer):
    """Make the broker silent for a while, from the moment on in which the next C++ consumer is opened."""
    reopener = consumer._order.reopener  # the only hook between closing and opening
    reopen_native = reopener.reopen_native
    is_back = threading.Event()

    def resume():
        is_back.set()
        proxy.resume()

    def open_later():
        reopener.reopen_native = reopen_native
        proxy.pause()
        threading.Timer(AWAY_SECONDS, resume).start()
        return reopen_native()

    reopener.reopen_native = open_later
    yield
    assert is_back.is_set()


@pytest.fixture
def proxy(broker):
    """Return a proxy before the broker."""
    with FaultProxy.to(broker.service_url, broker.detours) as proxy:
        yield proxy


@pytest.fixture
def connected(broker, proxy):
    """Return a client through the proxy, with a short operation timeout."""
    with contextlib.closing(
        pulsar.Client(proxy.service_url, **Reach.of(broker).options(), operation_timeout_seconds=2)
    ) as client:
        yield client


@pytest.fixture
def direct(broker):
    """Return a client that does not use the proxy."""
    with contextlib.closing(pulsar.Client(broker.service_url, **Reach.of(broker).options())) as client:
        yield client


@pytest.mark.parametrize("way", WAYS)
def test_receives_wait_for_the_broker(connected, proxy, topic, way):
    """A seek that cannot reopen the C++ consumer raises; later receives wait, and return the sought messages."""
    send_plain(connected, topic, COUNT)
    consumer = connected.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
    for _ in range(COUNT):
        consumer.receive(10_000)
    with silent_broker_on_reopen(proxy, consumer):
        with pytest.raises(pulsar.PulsarException):
            consumer.seek(pulsar.MessageId.earliest)
        came = [index_of(message) for message in itertools.islice(WAYS[way](consumer), COUNT)]
    assert came == list(range(COUNT))


@pytest.mark.core(slow="a broker is silent")
def test_receive_with_a_timeout_ends_in_time(connected, proxy, topic):
    """While the broker is away, a receive with a timeout raises Timeout, and no other error."""
    send_plain(connected, topic, COUNT)
    consumer = connected.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
    timeouts = 0
    with silent_broker_on_reopen(proxy, consumer):
        with pytest.raises(pulsar.PulsarException):
            consumer.seek(pulsar.MessageId.earliest)
        while True:
            try:
                assert index_of(consumer.receive(200)) == 0
                break
            except pulsar.Timeout:
                timeouts += 1
    assert timeouts


def test_listener_is_called_after_an_outage(connected, proxy, topic):
    """The C++ consumer is reopened for a listener, without a receive, once the broker is back."""
    send_plain(connected, topic, COUNT)
    came = []
    consumer = connected.subscribe(
        topic,
        "s",
        initial_position=pulsar.InitialPosition.Earliest,
        message_listener=lambda _, message: came.append(index_of(message)),
    )
    assert eventually(lambda: len(came) == COUNT, 60)
    with silent_broker_on_reopen(proxy, consumer):
        with pytest.raises(pulsar.PulsarException):
            consumer.seek(pulsar.MessageId.earliest)
        before = len(came)  # sought messages may have arrived during the seek as well
        assert eventually(lambda: len(came) - before == COUNT, 60)
    assert came[before:] == list(range(COUNT))


def test_async_receive_waits_for_the_broker(broker, proxy, topic):
    """An async receive waits for the broker, as the blocking one does."""

    async def receive_after_a_seek():
        async with pulsar_ext.asyncio.Client(
            proxy.service_url, **Reach.of(broker).options(), operation_timeout_seconds=2
        ) as client:
            producer = await client.create_producer(topic)
            await producer.send(b"0")
            consumer = await client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
            await consumer.receive()
            with silent_broker_on_reopen(proxy, consumer.blocking):
                with pytest.raises(pulsar.PulsarException):
                    await consumer.seek(pulsar.MessageId.earliest)
                return (await consumer.receive()).data()

    assert asyncio.run(receive_after_a_seek()) == b"0"


def test_cancelled_receives_do_not_block_a_close(broker, topic):
    """After more cancelled receives than the client has threads, a close ends, and so does a waiting receive."""

    def raise_unreachable():
        raise pulsar.ConnectError("The broker is away.")

    async def receive_and_close():
        client = pulsar_ext.asyncio.Client(broker.service_url, **Reach.of(broker).options())
        consumer = await client.subscribe(topic, "s")
        consumer.blocking._order.reopener.reopen_native = raise_unreachable
        with pytest.raises(pulsar.ConnectError):
            await consumer.seek(pulsar.MessageId.earliest)
        for _ in range(70):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(consumer.receive(), 0.005)
        waiting = asyncio.ensure_future(consumer.receive())
        await asyncio.sleep(0)
        await asyncio.wait_for(client.close(), 30)
        with pytest.raises(pulsar.AlreadyClosed):
            await waiting

    asyncio.run(receive_and_close())


@contextlib.contextmanager
def cut_connections(proxy):
    """Cut the connections while the requests of the block await the broker's answer."""
    proxy.pause()
    cut = threading.Timer(0.5, lambda: (proxy.cut(), proxy.resume()))
    cut.start()
    yield
    cut.join()


def test_has_message_available_is_retried(direct, connected, proxy, topic):
    """A query without an answer after a lost connection is repeated; the official client returns False."""
    reader = connected.create_reader(topic, pulsar.MessageId.earliest)
    for _ in range(3):
        assert not reader.has_message_available()
        with cut_connections(proxy):
            send_plain(direct, topic, 1)
            assert reader.has_message_available()
        assert index_of(reader.read_next(10_000)) == 0


def test_get_last_message_id_is_retried(connected, proxy, topic):
    """A query without an answer after a lost connection is repeated; the official client returns an id of -1."""
    sent = connected.create_producer(topic).send(b"")
    consumer = connected.subscribe(topic, "s")
    with cut_connections(proxy):
        assert consumer.get_last_message_id() == sent


def test_unsubscribe_is_retried(connected, proxy, topic, admin):
    """An unsubscription without an answer after a lost connection is repeated; officially the subscription stays."""
    consumer = connected.subscribe(topic, "s")
    with cut_connections(proxy):
        consumer.unsubscribe()
    assert "s" not in admin.subscriptions(topic)


def test_seek_is_retried(connected, proxy, topic):
    """A seek without an answer after a lost connection is repeated; the official client returns without it."""
    send_plain(connected, topic, COUNT)
    consumer = connected.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
    for _ in range(COUNT):
        consumer.acknowledge(consumer.receive(10_000))
    with cut_connections(proxy):
        consumer.seek(pulsar.MessageId.earliest)
    assert [index_of(consumer.receive(10_000)) for _ in range(COUNT)] == list(range(COUNT))


def test_has_message_available_during_another_threads_seek(connected, topic):
    """During seeks of another thread, which reopen the C++ reader, the query still returns an answer."""
    send_plain(connected, topic, COUNT)
    reader = connected.create_reader(topic, pulsar.MessageId.earliest)
    seeks = threading.Thread(target=lambda: [reader.seek(pulsar.MessageId.earliest) for _ in range(20)])
    seeks.start()
    while seeks.is_alive():
        assert reader.has_message_available()


def test_seek_raises_after_the_operation_timeout(connected, proxy, topic):
    """A seek raises after the operation timeout of an absent broker; its result is not known."""
    consumer = connected.subscribe(topic, "s")
    proxy.refuse()
    proxy.cut()
    with pytest.raises(pulsar.NotConnected, match="outcome is unknown"):
        consumer.seek(pulsar.MessageId.earliest)
    proxy.accept()
