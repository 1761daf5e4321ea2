"""A cancellation of something that an application's function awaited is an error of that function."""

import asyncio
import concurrent.futures

import pulsar
import pytest

import pulsar_ext


async def _await_what_is_cancelled():
    job = asyncio.ensure_future(asyncio.sleep(60))
    asyncio.get_running_loop().call_soon(job.cancel)
    await job


def test_listener_gets_the_next_message(run, topic):
    """A cancellation in a listener is logged, and the listener gets the next message."""

    async def steps(client):
        received = asyncio.Queue()

        async def listen(_, message):
            received.put_nowait(message.data())
            await _await_what_is_cancelled()

        await client.subscribe(topic, "s", message_listener=listen)
        producer = await client.create_producer(topic)
        for number in range(3):
            await producer.send(b"%d" % number)
        assert [await asyncio.wait_for(received.get(), 10) for _ in range(3)] == [b"0", b"1", b"2"]
        await client.close()
        await asyncio.sleep(0)

    run(steps)


def test_event_listener_is_notified_of_every_partition(run, topic):
    """A cancellation in an event listener is logged, and it is notified of the other partitions."""

    class Listener:
        def __init__(self):
            self.partitions = asyncio.Queue()

        async def became_active(self, _, partition):
            self.partitions.put_nowait(partition)
            await asyncio.sleep(0.2)  # the other events have arrived by then
            await _await_what_is_cancelled()

        async def became_inactive(self, *_):
            """Ignore the event."""

    async def steps(client):
        client.blocking.context.admin_api().create_partitioned_topic(topic, 3)
        listener = Listener()
        failover = pulsar.ConsumerType.Failover
        await client.subscribe(topic, "s", consumer_type=failover, consumer_event_listener=listener)
        assert {await asyncio.wait_for(listener.partitions.get(), 10) for _ in range(3)} == {0, 1, 2}
        await asyncio.sleep(0.5)

    run(steps)


def test_handler_cancellation_is_passed_to_on_error(run, topic):
    """A cancellation in a handler is passed to on_error like any other error."""

    async def steps(client):
        consumer = await client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Shared)
        await (await client.create_producer(topic)).send(b"")
        errors = []

        async def handle(_):
            await _await_what_is_cancelled()

        def on_error(_, error):
            errors.append(error)
            consumer.stop_processing()
            return pulsar_ext.Acknowledge()

        await asyncio.wait_for(consumer.process(handle, on_error=on_error), 20)
        assert [type(error) for error in errors] == [concurrent.futures.CancelledError]

    run(steps)


def test_handler_cancellation_is_reported_to_the_requester(run, topic):
    """A cancellation in a replier's handler is reported to the requester."""

    async def steps(client):
        async def answer(_):
            await _await_what_is_cancelled()

        async with await client.replier(topic, answer) as replier, await client.requester(topic) as requester:
            running = asyncio.ensure_future(replier.run())
            with pytest.raises(pulsar_ext.RequestFailed, match="CancelledError"):
                await requester.request(b"", timeout_ms=5000)
            replier.stop()
            await running

    run(steps)
