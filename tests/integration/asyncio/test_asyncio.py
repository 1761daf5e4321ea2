"""The asyncio client has the blocking client's features, and those that only an event loop needs."""

import asyncio
import random
import subprocess
import sys
import textwrap

import pulsar
import pytest
from reach import IMPORTED, Reach

import pulsar_ext
import pulsar_ext.asyncio
from pulsar_ext import ChunkMessageId, KeyHashRange, MessageId, key_slot
from pulsar_ext.errors import DuplicateMessage, InvalidUse

_BIG = b"." * 220_000


@pytest.mark.core
@pytest.mark.through
def test_chunked_messages(run, topic):
    """An awaited send returns the whole id; any form of it seeks, acknowledges and confirms the message."""

    async def steps(client):
        producer = await client.create_producer(topic, batching_enabled=False, chunking_enabled=True)
        consumer = await client.subscribe(topic, "s", start_message_id_inclusive=True)
        sent = [await producer.send(b"%d" % number + _BIG) for number in range(3)]
        assert all(type(one) is ChunkMessageId for one in sent)
        for one in sent:
            assert (await consumer.receive()).message_id() == one
        for form in (
            sent[1],
            MessageId.deserialize(sent[1].serialize()),
            MessageId(-1, sent[1].ledger_id(), sent[1].entry_id()),
        ):
            await consumer.seek(form)
            message = await consumer.receive(5000)
            assert message.message_id() == sent[1]
            await consumer.receive(5000)
        await consumer.seek(MessageId.earliest)
        assert (await consumer.receive(5000)).message_id() == sent[0]
        await consumer.acknowledge(MessageId.deserialize(sent[0].serialize()))
        await consumer.acknowledge_cumulative(sent[1])
        await consumer.acknowledge(await _skip_to(consumer, sent[2]))
        await consumer.flush_acks(confirm=True)
        assert consumer.pending_acks() == 0
        resolved = await client.resolve_message_id(topic, MessageId(-1, sent[2].ledger_id(), sent[2].entry_id()))
        assert (type(resolved), resolved) == (ChunkMessageId, sent[2])

    run(steps)


async def _skip_to(consumer, message_id):
    while (message := await consumer.receive(5000)).message_id() != message_id:
        pass
    return message


@pytest.mark.core(slow="a receive is cancelled at many moments")
@pytest.mark.parametrize("kind", ["consumer", "reader"])
def test_cancelled_receives(run, topic, kind):
    """Each message is received once and in order while 3,000 receives are cancelled at random moments."""

    async def steps(client):
        if kind == "consumer":
            receiving = await client.subscribe(topic, "s")
            receive = receiving.receive
        else:
            receiving = await client.create_reader(topic, MessageId.earliest)
            receive = receiving.read_next
        producer = await client.create_producer(topic, batching_max_publish_delay_ms=1)
        choose, cancelled, found = random.Random(9), 0, []

        async def produce():
            for number in range(300):
                await producer.send(b"%d" % number)

        producing = asyncio.create_task(produce())
        while cancelled < 3_000 or len(found) < 300:
            task = asyncio.create_task(receive())
            for _ in range(choose.randrange(6)):
                await asyncio.sleep(0)
            task.cancel()
            try:
                found.append(int((await task).data()))
            except asyncio.CancelledError:
                cancelled += 1
        await producing
        assert found == list(range(300))

    run(steps)


@pytest.mark.core
def test_timeouts(run, topic):
    """A receive that times out raises pulsar.Timeout and loses nothing; receive_many returns available messages."""

    async def steps(client):
        consumer = await client.subscribe(topic, "s")
        producer = await client.create_producer(topic)
        with pytest.raises(pulsar.Timeout):
            await consumer.receive(50)
        assert await consumer.receive_many(10, 50) == []
        await asyncio.gather(*(producer.send(b"%d" % number) for number in range(10)))
        found = []
        while len(found) < 10:
            found += await consumer.receive_many(7, 5000)
        assert [int(message.data()) for message in found] == list(range(10))
        async with consumer.ack_scope(found):
            pass
        assert consumer.pending_acks() == 0

    run(steps)


@pytest.mark.core
def test_close_ends_waiting_receives(run, topic):
    """Closing ends a waiting receive with AlreadyClosed, and an iteration; a second close raises."""

    async def steps(client):
        consumer = await client.subscribe(topic, "s")
        waiting = asyncio.create_task(consumer.receive())

        async def iterate():
            return [message async for message in consumer]

        iterating = asyncio.create_task(iterate())
        await asyncio.sleep(0.1)
        await consumer.close()
        with pytest.raises(pulsar.AlreadyClosed):
            await waiting
        assert await iterating == []
        with pytest.raises(pulsar.asyncio.PulsarException) as caught:
            await consumer.close()
        assert caught.value.error() == pulsar.Result.AlreadyClosed

    run(steps)


@pytest.mark.core
def test_process(run, topic):
    """Handlers run concurrently up to the limit; a message whose handler raised is redelivered and acknowledged."""

    async def steps(client):
        consumer = await client.subscribe(
            topic,
            "s",
            consumer_type=pulsar.ConsumerType.Shared,
            negative_ack_redelivery_delay_ms=100,
            initial_position=pulsar.InitialPosition.Earliest,
        )
        producer = await client.create_producer(topic)
        await asyncio.gather(*(producer.send(b"%d" % number) for number in range(50)))
        running = most = 0
        seen, finished = [], asyncio.Event()

        async def handle(message):
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.001)
            running -= 1
            number = int(message.data())
            seen.append(number)
            if number % 10 == 0 and seen.count(number) == 1:
                raise ValueError(number)
            if set(seen) == set(range(50)) and all(seen.count(one) > 1 for one in range(0, 50, 10)):
                finished.set()

        processing = asyncio.create_task(consumer.process(handle, concurrency=5))
        await finished.wait()
        await asyncio.sleep(0.05)
        processing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await processing
        await consumer.flush_acks(confirm=True)
        assert most == 5
        backlog = client.blocking.context.admin_api().stats(topic).subscriptions["s"].backlog_entries
        assert backlog == 0

    run(steps)


@pytest.mark.core
def test_full_queue_does_not_block_the_loop(run, topic):
    """2,000 concurrent sends wait for room in a queue of 10, in order, without blocking the loop."""

    async def steps(client):
        producer = await client.create_producer(
            topic, block_if_queue_full=True, max_pending_messages=10, batching_max_publish_delay_ms=1
        )
        turns = 0

        async def count():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0.001)

        counting = asyncio.create_task(count())
        sent = await asyncio.gather(*(producer.send(b"%d" % number) for number in range(2000)))
        counting.cancel()
        assert turns > 10
        assert sent == sorted(sent)
        reader = await client.create_reader(topic, MessageId.earliest)
        assert [int((await reader.read_next(5000)).data()) for _ in sent] == list(range(2000))

    run(steps)


@pytest.mark.core
def test_effectively_once(deduplicating, pulsar_topic_factory):
    """A deduplicating producer that is created again rejects messages that the topic has, and sends the others."""
    topic = pulsar_topic_factory(broker=deduplicating)

    async def steps():
        async with pulsar_ext.asyncio.Client(deduplicating.service_url, **Reach.of(deduplicating).options()) as client:
            for begin in (0, 5):
                async with await client.create_producer(topic, producer_name="p", deduplication=True) as producer:
                    outcomes = await asyncio.gather(
                        *(producer.send(b"%d" % one, sequence_id=one) for one in range(begin, begin + 10)),
                        return_exceptions=True,
                    )
                    known = [isinstance(one, DuplicateMessage) for one in outcomes]
                    assert known == [begin > 0 and number < 5 for number in range(10)]
            reader = await client.create_reader(topic, MessageId.earliest)
            found = []
            while await reader.has_message_available():
                found.append(int((await reader.read_next(5000)).data()))
            assert found == list(range(15))

    asyncio.run(steps())


@pytest.mark.core
def test_other_features_are_awaited(run, topic):
    """Skipping, message_id_after, key ranges and table views work in asyncio."""

    async def steps(client):
        consumer = await client.subscribe(topic, "s")
        producer = await client.create_producer(topic, batching_enabled=False)
        keys = [f"k{number}" for number in range(20)]
        sent = [await producer.send(key.encode(), partition_key=key) for key in keys]
        await consumer.close()
        assert (await client.message_id_after(topic, sent[0], 7)) == sent[7]
        result = await client.skip_messages(topic, "s", 15)
        assert (result.skipped_messages, result.exact) == (15, True)
        async with await client.subscribe(topic, "s") as again:
            assert (await again.receive(5000)).data() == keys[15].encode()
        wanted = KeyHashRange(0, 30_000)
        reader = await client.create_reader(topic, MessageId.earliest, key_hash_ranges=[wanted])
        found = []
        while await reader.has_message_available():
            found.append((await reader.read_next(5000)).partition_key())
        assert found == [key for key in keys if key_slot(key) in wanted]
        async with await client.create_table_view(topic) as view:
            assert (len(view), view.get("k3")) == (20, b"k3")

    run(steps)


@pytest.mark.parametrize("ranges", [None, [(0, 60_000)]])
def test_message_after_a_timed_out_read_is_available(run, topic, ranges):
    """A message sent after a read timed out is available, whether it is still in the C++ queue or not."""

    async def steps(client):
        producer = await client.create_producer(topic, batching_enabled=False)
        await producer.send(b"first", partition_key="k3")
        reader = await client.create_reader(topic, MessageId.latest, key_hash_ranges=ranges)
        assert not await reader.has_message_available()
        missed = 0
        for number in range(200):
            with pytest.raises(pulsar.Timeout):
                await reader.read_next(1)
            await producer.send(b"%d" % number, partition_key="k3")
            missed += not await reader.has_message_available()
            assert (await reader.read_next(5000)).data() == b"%d" % number
        assert missed == 0

    run(steps)


@pytest.mark.core
def test_invalid_arguments_raise_before_any_change(run, topic):
    """Errors are caught by either client's classes, and invalid arguments raise before any change."""

    async def steps(client):
        first = await client.subscribe(topic, "s")
        with pytest.raises(pulsar.PulsarException) as caught:
            await client.subscribe(topic, "s")
        assert isinstance(caught.value, pulsar.asyncio.PulsarException)
        assert isinstance(caught.value, pulsar.ConsumerBusy)
        with pytest.raises(InvalidUse):
            await first.seek(True)  # noqa: FBT003  # the invalid value under test
        with pytest.raises(ValueError, match="is_pattern_topic"):
            await client.subscribe([topic], "t", is_pattern_topic=True)
        producer = await client.create_producer(topic)
        with pytest.raises(pulsar.PulsarException):
            await producer.send(b"x" * 10_000_000)

    run(steps)


def test_client_may_be_used_by_several_loops(broker, topic):
    """A client may be used by several loops in turn; the message of an abandoned receive is kept."""
    client = pulsar_ext.asyncio.Client(broker.service_url, **broker.client_options(pulsar_ext))

    async def first():
        consumer = await client.subscribe(topic, "s")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(consumer.receive(), 0.05)
        return consumer, await client.create_producer(topic)

    async def second(consumer, producer):
        await producer.send(b"one")
        await producer.send(b"two")
        assert [(await consumer.receive(5000)).data() for _ in range(2)] == [b"one", b"two"]
        await client.close()

    asyncio.run(second(*asyncio.run(first())))


@pytest.mark.parametrize("dead_letters", [False, True])
def test_program_exits_with_a_pending_receive(broker, topic, dead_letters):
    """A program exits normally if its loop ends during a receive; officially it is aborted."""
    program = IMPORTED + textwrap.dedent(f"""
        import asyncio, threading, time
        import pulsar_ext as pulsar, pulsar_ext.asyncio
        reach = Reach.unpack({Reach.of(broker).pack()!r})
        sender = pulsar.Client(reach.service_url, **reach.options())
        producer = sender.create_producer({topic!r})
        async def main():
            client = pulsar.asyncio.Client(reach.service_url, **reach.options())
            options = dict(consumer_type=pulsar.ConsumerType.Shared)
            if {dead_letters}:
                options["dead_letter_policy"] = pulsar.ConsumerDeadLetterPolicy(9, {topic!r} + "-dead")
            consumer = await client.subscribe({topic!r}, "s", **options)
            task = asyncio.ensure_future(consumer.receive())
            await asyncio.sleep(0.1)
            return client, consumer
        client, consumer = asyncio.run(main())
        for _ in range(10):
            producer.send(b"x")
        time.sleep(0.2)
        print("ended")
    """)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "ended" in done.stdout.splitlines()


def test_many_clients_share_a_loop(run, pulsar_topic_factory, broker):
    """100 consumers and 100 producers on one loop receive every message once."""
    topics = [pulsar_topic_factory(broker=broker) for _ in range(100)]

    async def steps(client):
        consumers = await asyncio.gather(*(client.subscribe(topic, "s") for topic in topics))
        producers = await asyncio.gather(*(client.create_producer(topic) for topic in topics))

        async def send(producer):
            await asyncio.gather(*(producer.send(b"%d" % number) for number in range(20)))

        async def receive(consumer):
            found = []
            for _ in range(20):
                message = await consumer.receive()
                found.append(int(message.data()))
                await consumer.acknowledge(message)
            return found

        sending = asyncio.gather(*map(send, producers))
        assert await asyncio.gather(*map(receive, consumers)) == [list(range(20))] * 100
        await sending

    run(steps)
