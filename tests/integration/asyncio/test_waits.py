"""Callers of the asyncio client may wait, be cancelled, or close it."""

import asyncio

import pulsar
import pytest
from reach import Reach

import pulsar_ext
import pulsar_ext.asyncio
from pulsar_ext import KeyHashRange, MessageId, key_slot
from pulsar_ext.testing import FaultProxy


def _screened(topic):
    """Return options of a consumer whose messages Python screens."""
    policy = pulsar_ext.ConsumerDeadLetterPolicy(9, f"{topic}-dead")
    return {"consumer_type": pulsar.ConsumerType.Shared, "dead_letter_policy": policy}


@pytest.mark.core
def test_seek_drops_messages_of_abandoned_reads(run, topic):
    """A seek drops the message of an abandoned read of key ranges, and delivers it again in its place."""

    async def steps(client):
        producer = await client.create_producer(topic, batching_enabled=False)
        for number in range(3):
            await producer.send(b"%d" % number, partition_key="k")
        slot = key_slot("k")
        reader = await client.create_reader(topic, MessageId.latest, key_hash_ranges=[KeyHashRange(slot, slot)])
        with pytest.raises(pulsar.Timeout):
            await reader.read_next(50)
        await producer.send(b"3", partition_key="k")
        while not reader._queue.has_ready:  # noqa: ASYNC110  # the abandoned read's answer has no event
            await asyncio.sleep(0.01)
        await reader.seek(MessageId.earliest)
        assert [(await reader.read_next(5000)).data() for _ in range(4)] == [b"0", b"1", b"2", b"3"]
        with pytest.raises(pulsar.Timeout):
            await reader.read_next(200)

    run(steps)


@pytest.mark.core
def test_fetched_messages_follow_each_transition(run, topic):
    """Messages fetched ahead wait for the end of a pause; a seek and a redelivery drop and redeliver them."""

    async def steps(client):
        producer = await client.create_producer(topic)
        await producer.send_many([b"%d" % number for number in range(300)])
        consumer = await client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)

        async def receive(numbers):
            assert [int((await consumer.receive(10_000)).data()) for _ in numbers] == [*numbers]

        await receive(range(50))
        consumer.pause()
        with pytest.raises(pulsar.Timeout):
            await consumer.receive(100)
        consumer.resume()
        await receive(range(50, 60))
        await consumer.seek(MessageId.earliest)
        await receive(range(60))
        consumer.redeliver_unacknowledged_messages()
        await receive(range(300))
        with pytest.raises(pulsar.Timeout):
            await consumer.receive(100)

    run(steps)


def test_cancelled_batches_lose_no_messages(run, topic):
    """Messages of a cancelled batch_receive() or a timed-out receive go to the next call."""

    async def steps(client):
        policy = pulsar_ext.ConsumerBatchReceivePolicy(10, -1, 1_000)
        consumer = await client.subscribe(topic, "s", batch_receive_policy=policy)
        producer = await client.create_producer(topic, batching_enabled=False)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(consumer.batch_receive(), 0.05)
        sent = [await producer.send(b"%d" % number) for number in range(3)]
        assert [(await consumer.receive(5000)).message_id() for _ in sent] == sent
        with pytest.raises(pulsar.Timeout):
            await consumer.receive(50)
        sent = [await producer.send(b"%d" % number) for number in range(3, 6)]
        found = []
        while len(found) < len(sent):
            found += await consumer.batch_receive()
        assert [message.message_id() for message in found] == sent
        async with consumer.ack_scope():
            await producer.send(b"6")
            assert len(await consumer.batch_receive()) == 1

    run(steps)


def test_closed_client_raises_and_may_be_closed_again(broker, topic):
    """A second close does nothing; any other call, also on opened objects, raises AlreadyClosed."""

    async def steps():
        client = pulsar_ext.asyncio.Client(broker.service_url, **broker.client_options(pulsar_ext))
        producer = await client.create_producer(topic)
        async with await client.subscribe(topic, "s") as consumer:
            await client.close()
        await client.close()
        message = MessageId(-1, 0, 0)
        for use in (
            lambda: client.create_producer(topic),
            lambda: client.get_topic_partitions(topic),
            lambda: producer.send(b""),
            producer.flush,
            consumer.receive,
            lambda: consumer.receive(50),
            lambda: consumer.seek(message),
            consumer.flush_acks,
        ):
            with pytest.raises(pulsar.AlreadyClosed):
                await use()

    asyncio.run(steps())


def test_views_and_groups_may_be_closed_after_their_client(run, topic):
    """Closing a view or a reader group after its client does nothing, as in the blocking client."""

    async def steps(client):
        await client.create_producer(topic)
        group = await client.create_reader_group(topic, MessageId.latest, 2)
        view = await client.create_table_view(topic)
        await client.close()
        await group.close()
        await view.close()

    run(steps)


async def _waiting_for_room(client, topic):
    """Return a producer with a queue of one message, and eighty sends that have begun."""
    producer = await client.create_producer(
        topic, batching_enabled=False, block_if_queue_full=True, max_pending_messages=1
    )
    sending = [asyncio.create_task(producer.send(b"%d" % number)) for number in range(80)]
    await asyncio.sleep(0)
    return producer, sending


@pytest.mark.core
@pytest.mark.parametrize("closed", ["producer", "client"])
def test_close_sends_waiting_messages(run, topic, closed):
    """Eighty sends that wait for room are persisted when their producer or its client is closed."""

    async def steps(client):
        producer, sending = await _waiting_for_room(client, topic)
        await (producer if closed == "producer" else client).close()
        sent = await asyncio.wait_for(asyncio.gather(*sending), 20)
        assert sent == sorted(set(sent))
        with pytest.raises(pulsar.AlreadyClosed):
            await producer.send(b"late")

    run(steps)


@pytest.mark.parametrize("flush", [True, False])
def test_send_during_send_many_does_not_block_the_loop(pulsar_broker, pulsar_topic, flush):
    """Sends during a send_many() with a full queue and a silent broker do not block the loop, and are persisted."""

    async def steps(proxy):
        options = Reach.of(pulsar_broker).options()
        async with pulsar_ext.asyncio.Client(proxy.service_url, **options) as client:
            producer = await client.create_producer(pulsar_topic, block_if_queue_full=True, max_pending_messages=100)
            await producer.send(b"")
            proxy.pause()
            many = asyncio.ensure_future(producer.send_many([b""] * (500 if flush else 100), flush=flush))
            await (asyncio.sleep(0.5) if flush else many)
            others = [asyncio.ensure_future(producer.send(b"")) for _ in range(150)]
            await asyncio.sleep(0)
            proxy.resume()
            await asyncio.gather(many, *others)
            await producer.flush()
            assert producer._has_room()

    with FaultProxy.to(pulsar_broker.service_url, pulsar_broker.detours) as proxy:
        asyncio.run(steps(proxy))


def test_flush_sends_waiting_messages(run, topic):
    """Eighty sends that wait for room are persisted by a flush."""

    async def steps(client):
        producer, sending = await _waiting_for_room(client, topic)
        await producer.flush()
        await asyncio.sleep(0)
        assert all(send.done() for send in sending)

    run(steps)


async def _both(producer, client):
    await asyncio.gather(producer.close(), client.close())


async def _cancelled_first(producer, client):
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(producer.close(), 0.001)
    await client.close()


@pytest.mark.parametrize("close", [_both, _cancelled_first])
def test_second_close_sends_waiting_messages(run, topic, close):
    """Eighty sends that wait for room are persisted by two concurrent closes, and by one after a cancelled close."""

    async def steps(client):
        producer, sending = await _waiting_for_room(client, topic)
        await close(producer, client)
        assert len(set(await asyncio.wait_for(asyncio.gather(*sending), 20))) == 80

    run(steps)


@pytest.mark.parametrize("end", ["consumer.close", "consumer.unsubscribe", "client.close"])
def test_cancelled_close_ends_receives_of_a_paused_consumer(run, topic, end):
    """A close or unsubscribe that is cancelled still completes, and a waiting receive raises AlreadyClosed."""

    async def steps(client):
        consumer = await client.subscribe(topic, "s")
        consumer.pause()
        waiting = asyncio.ensure_future(consumer.receive())
        await asyncio.sleep(0)
        owner, method = end.split(".")
        ending = asyncio.ensure_future(getattr({"consumer": consumer, "client": client}[owner], method)())
        await asyncio.sleep(0)  # the call has begun
        ending.cancel()
        with pytest.raises(pulsar.AlreadyClosed):
            await asyncio.wait_for(waiting, 20)
        await asyncio.sleep(0)

    run(steps)


def test_waiting_consumers_block_no_other_calls(run, topic):
    """Waiting consumers with screened messages, more than there are threads, block no other calls."""

    async def steps(client):
        names = [f"{topic}-{number}" for number in range(66)]
        consumers = await asyncio.gather(*(client.subscribe(name, "s", **_screened(name)) for name in names))
        waiting = [asyncio.create_task(consumer.receive()) for consumer in consumers]
        await asyncio.sleep(0.2)
        producer = await client.create_producer(names[-1])
        sent = await producer.send(b"x")
        assert (await waiting.pop()).message_id() == sent
        await client.close()
        for answer in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(answer, pulsar.AlreadyClosed)

    run(steps)


@pytest.mark.filterwarnings("ignore::pulsar_ext.MixedKeyBatchWarning", "ignore::pulsar_ext.UncoveredSlotsWarning")
def test_misrouted_handler_error_ends_one_receive(run, topic):
    """The exception of a function for misrouted messages is raised by one receive, and the next one continues."""
    strangers = []

    def redirect(message):
        strangers.append(message.partition_key())
        if len(strangers) == 1:
            raise KeyError(message.partition_key())

    async def steps(client):
        slot = key_slot("own")
        policy = pulsar_ext.KeySharedPolicy.sticky_hash_range().ranges((slot, slot))
        builder = client.new_consumer().topic(topic).subscription_name("s").key_shared_policy(policy)
        consumer = await builder.on_misrouted(redirect).subscribe()
        assert consumer.key_hash_ranges.contains_key("own")
        producer = await client.create_producer(topic, batching_max_publish_delay_ms=1000, batching_max_messages=4)
        await asyncio.gather(*(producer.send(b"", partition_key=key) for key in ("own", "a", "b", "own")))
        assert (await consumer.receive(5000)).partition_key() == "own"
        with pytest.raises(KeyError):
            await consumer.receive(5000)
        assert (await consumer.receive(5000)).partition_key() == "own"
        assert set(strangers) == {"a", "b"}

    run(steps)


@pytest.mark.core
@pytest.mark.filterwarnings("ignore::pulsar_ext.MixedKeyBatchWarning")
def test_group_reader_supports_concurrent_reads(run, topic):
    """Fifty concurrent reads of a reader of a group return the messages of a batch once each, in order."""

    async def steps(client):
        producer = await client.create_producer(topic, batching_max_publish_delay_ms=1000, batching_max_messages=50)
        await asyncio.gather(*(producer.send(b"%d" % one, partition_key=f"k{one}") for one in range(50)))
        async with await client.create_reader_group(topic, MessageId.earliest, 1, filtering="broker") as group:
            [reader] = group
            found = await asyncio.gather(*(reader.read_next(5000) for _ in range(50)))
            assert [int(message.data()) for message in found] == list(range(50))
            await reader.close()

    run(steps)


@pytest.mark.core
def test_listeners_are_called_in_the_loop(run, topic):
    """Listeners of readers and of builders' consumers, async or not, are called in the loop and can be paused."""

    async def steps(client):
        loop, received = asyncio.get_running_loop(), asyncio.Queue()

        def listen(_, message):
            assert asyncio.get_running_loop() is loop
            received.put_nowait(message.data())

        async def await_it(consumer, message):
            await consumer.acknowledge(message)
            listen(consumer, message)

        builder = client.new_consumer().topic(topic).subscription_name("s").message_listener(await_it)
        consumer = await builder.subscribe()
        producer = await client.create_producer(topic)
        await producer.send(b"0")
        reader = await client.create_reader(topic, MessageId.earliest, reader_listener=listen)
        assert [await received.get() for _ in range(2)] == [b"0", b"0"]
        consumer.pause_message_listener()
        await producer.send(b"1")
        assert await received.get() == b"1"
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(received.get(), 0.2)
        consumer.resume_message_listener()
        assert await received.get() == b"1"
        with pytest.raises(pulsar.InvalidConfiguration):
            (await client.subscribe(topic, "without")).pause_message_listener()
        assert reader.is_connected()
        assert consumer.is_connected()
        await client.close()
        await asyncio.sleep(0)

    run(steps)


def test_rejected_send_leaves_the_queue(run, topic):
    """A cancelled send that is rejected later is no longer counted as pending, so later sends need no thread."""

    async def steps(client):
        producer = await client.create_producer(topic, max_pending_messages=2, block_if_queue_full=True)
        before = [asyncio.ensure_future(producer.send(b"%d" % number)) for number in range(50)]
        rejected = asyncio.ensure_future(producer.send("neither bytes nor rejected at once"))
        await asyncio.sleep(0)
        rejected.cancel()
        await asyncio.gather(*before)
        with pytest.raises(asyncio.CancelledError):
            await rejected
        while producer._queued:  # noqa: ASYNC110  # the thread does not signal its end
            await asyncio.sleep(0.01)
        assert producer._in_flight == 0

    run(steps)


def test_cancelled_process_redelivers_its_messages(run, topic):
    """A process() that is cancelled at any turn of the loop negatively acknowledges every message it has."""

    async def steps(client):
        producer = await client.create_producer(topic, batching_enabled=False)
        consumer = await client.subscribe(
            topic, "s", consumer_type=pulsar.ConsumerType.Shared, negative_ack_redelivery_delay_ms=100
        )
        await asyncio.gather(*(producer.send(b"%d" % number) for number in range(200)))
        handled = set()

        async def handle(message):
            await asyncio.sleep(0)
            handled.add(int(message.data()))
            if len(handled) == 200:
                consumer.stop_processing()

        for turns in range(12):
            message = await consumer.receive(5000)  # others wait in the queue after it
            handled.add(int(message.data()))
            await consumer.acknowledge(message)
            processing = asyncio.create_task(consumer.process(handle, concurrency=3))
            for _ in range(turns):
                await asyncio.sleep(0)
            processing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await processing
        async with asyncio.timeout(30):
            await consumer.process(handle, concurrency=3)
        assert handled == set(range(200))

    run(steps)
