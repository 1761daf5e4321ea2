"""A consumer that is replaced while the broker cannot be reached: whoever receives waits for it, as officially."""

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
def gone_as_it_is_replaced(proxy, consumer):
    """Have the broker be silent from the moment on in which the next C++ consumer is opened, for a while."""
    foundation = consumer._order.foundation  # the only place between the two
    open_anew = foundation.open_anew
    is_back = threading.Event()

    def come_back():
        is_back.set()
        proxy.resume()

    def open_later():
        foundation.open_anew = open_anew
        proxy.pause()
        threading.Timer(AWAY_SECONDS, come_back).start()
        return open_anew()

    foundation.open_anew = open_later
    yield
    assert is_back.is_set()


@pytest.fixture
def proxy(broker):
    """What stands before the broker."""
    with FaultProxy.to(broker.service_url, broker.detours) as proxy:
        yield proxy


@pytest.fixture
def connected(broker, proxy):
    """A client through the proxy whose openings end soon."""
    with contextlib.closing(
        pulsar.Client(proxy.service_url, **Reach.of(broker).options(), operation_timeout_seconds=2)
    ) as client:
        yield client


@pytest.fixture
def direct(broker):
    """A client that the proxy is not before."""
    with contextlib.closing(pulsar.Client(broker.service_url, **Reach.of(broker).options())) as client:
        yield client


@pytest.mark.parametrize("way", WAYS)
def test_whoever_receives_waits_for_the_broker(connected, proxy, topic, way):
    """A seek raises that cannot open another C++ consumer; the receives behind it do not, and get what was sought."""
    send_plain(connected, topic, COUNT)
    consumer = connected.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
    for _ in range(COUNT):
        consumer.receive(10_000)
    with gone_as_it_is_replaced(proxy, consumer):
        with pytest.raises(pulsar.PulsarException):
            consumer.seek(pulsar.MessageId.earliest)
        came = [index_of(message) for message in itertools.islice(WAYS[way](consumer), COUNT)]
    assert came == list(range(COUNT))


@pytest.mark.core(slow="a broker is silent")
def test_a_receive_with_a_timeout_ends_in_time(connected, proxy, topic):
    """While the broker is away it raises Timeout, and no other error."""
    send_plain(connected, topic, COUNT)
    consumer = connected.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
    timeouts = 0
    with gone_as_it_is_replaced(proxy, consumer):
        with pytest.raises(pulsar.PulsarException):
            consumer.seek(pulsar.MessageId.earliest)
        while True:
            try:
                assert index_of(consumer.receive(200)) == 0
                break
            except pulsar.Timeout:
                timeouts += 1
    assert timeouts


def test_a_listener_is_called_again(connected, proxy, topic):
    """Nobody receives, and another C++ consumer is opened all the same, once the broker is there."""
    send_plain(connected, topic, COUNT)
    came = []
    consumer = connected.subscribe(
        topic,
        "s",
        initial_position=pulsar.InitialPosition.Earliest,
        message_listener=lambda _, message: came.append(index_of(message)),
    )
    assert eventually(lambda: len(came) == COUNT, 60)
    with gone_as_it_is_replaced(proxy, consumer):
        with pytest.raises(pulsar.PulsarException):
            consumer.seek(pulsar.MessageId.earliest)
        before = len(came)  # what was sought may have come amid the seek as well
        assert eventually(lambda: len(came) - before == COUNT, 60)
    assert came[before:] == list(range(COUNT))


def test_an_awaited_receive_waits_for_the_broker(broker, proxy, topic):
    """As the blocking one."""

    async def receive_behind_a_seek():
        async with pulsar_ext.asyncio.Client(
            proxy.service_url, **Reach.of(broker).options(), operation_timeout_seconds=2
        ) as client:
            producer = await client.create_producer(topic)
            await producer.send(b"0")
            consumer = await client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
            await consumer.receive()
            with gone_as_it_is_replaced(proxy, consumer.blocking):
                with pytest.raises(pulsar.PulsarException):
                    await consumer.seek(pulsar.MessageId.earliest)
                return (await consumer.receive()).data()

    assert asyncio.run(receive_behind_a_seek()) == b"0"


def test_abandoned_receives_leave_a_close_its_threads(broker, topic):
    """More receives than the client has threads give up on a broker that is away; a close ends, and one that waits."""

    def raise_unreachable():
        raise pulsar.ConnectError("The broker is away.")

    async def receive_and_close():
        client = pulsar_ext.asyncio.Client(broker.service_url, **Reach.of(broker).options())
        consumer = await client.subscribe(topic, "s")
        consumer.blocking._order.foundation.open_anew = raise_unreachable
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
def cut_amid(proxy):
    """Have the connections end while the broker owes an answer to what is asked in the block."""
    proxy.pause()
    cut = threading.Timer(0.5, lambda: (proxy.cut(), proxy.resume()))
    cut.start()
    yield
    cut.join()


def test_a_reader_asks_again_whether_there_is_a_message(direct, connected, proxy, topic):
    """The connection ends while the broker owes the answer: officially that means no, here it is asked again."""
    reader = connected.create_reader(topic, pulsar.MessageId.earliest)
    for _ in range(3):
        assert not reader.has_message_available()
        with cut_amid(proxy):
            send_plain(direct, topic, 1)
            assert reader.has_message_available()
        assert index_of(reader.read_next(10_000)) == 0


def test_a_consumer_asks_again_for_the_last_id(connected, proxy, topic):
    """The connection ends while the broker owes the answer: officially all numbers are -1, here it is asked again."""
    sent = connected.create_producer(topic).send(b"")
    consumer = connected.subscribe(topic, "s")
    with cut_amid(proxy):
        assert consumer.get_last_message_id() == sent


def test_an_unsubscription_deletes_the_subscription(connected, proxy, topic, admin):
    """The connection ends while the broker owes the answer: officially it returns and the subscription stays."""
    consumer = connected.subscribe(topic, "s")
    with cut_amid(proxy):
        consumer.unsubscribe()
    assert "s" not in admin.subscriptions(topic)


def test_a_seek_is_done(connected, proxy, topic):
    """The connection ends while the broker owes the answer: officially a seek returns that was not done."""
    send_plain(connected, topic, COUNT)
    consumer = connected.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
    for _ in range(COUNT):
        consumer.acknowledge(consumer.receive(10_000))
    with cut_amid(proxy):
        consumer.seek(pulsar.MessageId.earliest)
    assert [index_of(consumer.receive(10_000)) for _ in range(COUNT)] == list(range(COUNT))


def test_a_reader_that_another_thread_seeks_tells_whether_there_is_a_message(connected, topic):
    """A seek closes the C++ reader for another one, and whoever asks meanwhile gets the answer of one of them."""
    send_plain(connected, topic, COUNT)
    reader = connected.create_reader(topic, pulsar.MessageId.earliest)
    seeks = threading.Thread(target=lambda: [reader.seek(pulsar.MessageId.earliest) for _ in range(20)])
    seeks.start()
    while seeks.is_alive():
        assert reader.has_message_available()


def test_a_seek_that_cannot_be_done_raises(connected, proxy, topic):
    """The broker stays away for the operation timeout: the seek says that it is not known whether it was done."""
    consumer = connected.subscribe(topic, "s")
    proxy.refuse()
    proxy.cut()
    with pytest.raises(pulsar.NotConnected, match="not known"):
        consumer.seek(pulsar.MessageId.earliest)
    proxy.accept()
