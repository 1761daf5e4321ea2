"""What the application's own functions raise when something that they awaited was cancelled, and they were not."""

import asyncio
import concurrent.futures

import pulsar
import pytest

import pulsar_ext


async def _await_what_is_cancelled():
    job = asyncio.ensure_future(asyncio.sleep(60))
    asyncio.get_running_loop().call_soon(job.cancel)
    await job


def test_a_listener_hears_the_next_message(run, topic):
    """A cancellation that comes out of a listener is logged, and the next message is handed to it."""

    async def steps(client):
        heard = asyncio.Queue()

        async def hear(_, message):
            heard.put_nowait(message.data())
            await _await_what_is_cancelled()

        await client.subscribe(topic, "s", message_listener=hear)
        producer = await client.create_producer(topic)
        for number in range(3):
            await producer.send(b"%d" % number)
        assert [await asyncio.wait_for(heard.get(), 10) for _ in range(3)] == [b"0", b"1", b"2"]
        await client.close()
        await asyncio.sleep(0)

    run(steps)


def test_an_event_listener_hears_of_every_partition(run, topic):
    """A cancellation that comes out of it is logged, and it is told of the other partitions."""

    class Listener:
        def __init__(self):
            self.told = asyncio.Queue()

        async def became_active(self, _, partition):
            self.told.put_nowait(partition)
            await asyncio.sleep(0.2)  # the other events are there by then
            await _await_what_is_cancelled()

        async def became_inactive(self, *_):
            """Hear it."""

    async def steps(client):
        client.blocking.context.admin_api().create_partitioned_topic(topic, 3)
        listener = Listener()
        failover = pulsar.ConsumerType.Failover
        await client.subscribe(topic, "s", consumer_type=failover, consumer_event_listener=listener)
        assert {await asyncio.wait_for(listener.told.get(), 10) for _ in range(3)} == {0, 1, 2}
        await asyncio.sleep(0.5)

    run(steps)


def test_a_handler_of_process_has_raised(run, topic):
    """A cancellation that comes out of a handler goes to on_error, as any other error does."""

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


def test_a_requester_is_told(run, topic):
    """A cancellation that comes out of the handler of a replier is told to the requester."""

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
