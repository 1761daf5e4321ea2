"""FastStream services during stops, cut connections and kills: every published message is handled."""

from __future__ import annotations

import asyncio
import random

import pytest
from fasted import SHARED, faststream_broker, run_to_end, until

MESSAGES = 1_000


def test_stops_during_handlers_lose_nothing(broker, topic, client):
    """Six services are stopped during their handlers, one after the other; each next one gets the rest."""
    begun, ended, dice = [], [], random.Random(7)

    async def steps():
        consumed = client.subscribe(topic, "s", SHARED)
        consumed.close()
        async with faststream_broker(broker) as sending:
            await sending.publish_batch(*range(MESSAGES), topic=topic)
        for number in range(7):
            service = faststream_broker(broker)

            @service.subscriber(topic, subscription="s", subscription_type=SHARED, max_workers=10)
            async def handle(number: int):
                begun.append(number)
                await asyncio.sleep(0.01)
                ended.append(number)

            async with service:
                await service.start()
                so_far = len(ended)
                enough = MESSAGES if number == 6 else so_far + dice.randrange(1, 120)
                await until(lambda enough=enough: len(set(ended)) >= min(enough, MESSAGES))
            assert len(begun) == len(ended)  # handlers ended before stop() returned

    run_to_end(steps)
    assert sorted(set(ended)) == list(range(MESSAGES))
    assert len(ended) == MESSAGES  # a clean stop acknowledges handled messages: none was handled twice


class TestStopInABatch:
    """A stop after the first messages of a batch."""

    @pytest.fixture(params=["plain", "batch-index-acks"])
    def broker(self, pulsar_broker_factory, request):
        """Return a broker that acknowledges only whole batches, and one with acknowledgements inside batches."""
        return pulsar_broker_factory(request.param)

    @pytest.mark.parametrize("max_workers", [1, 3])
    def test_stop_in_a_batch_repeats_nothing(self, broker, topic, client, max_workers):
        """The next service gets only the messages that the previous one did not handle."""
        client.subscribe(topic, "s", SHARED).close()
        with client.create_producer(topic, batching_enabled=True, batching_max_messages=30) as producer:
            producer.send_many([b"%d" % number for number in range(90)])
        seen = []

        async def steps():
            for enough in (40, 90):
                service = faststream_broker(broker)

                @service.subscriber(topic, subscription="s", subscription_type=SHARED, max_workers=max_workers)
                async def handle(number: int):
                    seen.append(number)
                    await asyncio.sleep(0.01)

                async with service:
                    await service.start()
                    await until(lambda enough=enough: len(seen) >= enough)
                stopped.append(len(seen))

        stopped = []
        run_to_end(steps)
        assert sorted(seen) == list(range(90))
        assert stopped[0] < 90

    def test_stop_in_a_handler_does_not_wait_for_the_batch(self, broker, topic, client):
        """A handler's own `stop()` does not wait for more messages of its batch."""
        client.subscribe(topic, "s", SHARED).close()
        with client.create_producer(topic, batching_enabled=True, batching_max_messages=30) as producer:
            producer.send_many([b"%d" % number for number in range(30)])
        service, seen = faststream_broker(broker, graceful_timeout=10_000.0), []

        @service.subscriber(topic, subscription="s", subscription_type=SHARED)
        async def handle(number: int):
            await service.stop()
            seen.append(number)

        async def steps():
            async with service:
                await service.start()
                await until(lambda: seen)

        run_to_end(steps)
        assert seen == [0]


def test_acknowledged_on_silent_connection_is_handled_once(broker, topic, client, admin, pulsar_fault_proxy):
    """Sixty handlers return on a silent connection: each message is handled once and acknowledged."""
    proxy = pulsar_fault_proxy(broker)
    service, handled, end = faststream_broker(broker, proxy.service_url), [], asyncio.Event()

    @service.subscriber(topic, subscription="s", subscription_type=SHARED, max_workers=60)
    async def handle(number: int):
        handled.append(number)
        await end.wait()

    def send(numbers):
        producer = client.create_producer(topic)
        for number in numbers:
            producer.send_async(b"%d" % number, None)
        producer.flush()

    async def steps():
        async with service:
            await service.start()
            send(range(60))
            await until(lambda: len(handled) == 60)
            proxy.pause()
            end.set()
            await asyncio.sleep(1)
            proxy.cut()
            proxy.resume()
            send(range(60, 70))
            await until(lambda: len(handled) >= 70 and not admin.stats(topic).subscriptions["s"].backlog_entries)

    run_to_end(steps)
    assert sorted(handled) == list(range(70))


def test_cancelled_handlers_messages_are_redelivered(broker, topic):
    """Handlers that exceed the graceful timeout are cancelled, and the next service gets their messages."""
    begun, ended = [], []

    def service_of(seconds):
        service = faststream_broker(broker, graceful_timeout=0.2)

        @service.subscriber(topic, subscription="s", subscription_type=SHARED, max_workers=5)
        async def handle(number: int):
            begun.append(number)
            await asyncio.sleep(seconds)
            ended.append(number)

        return service

    async def steps():
        async with service_of(3_600) as service:
            await service.start()
            await service.publish_batch(*range(20), topic=topic)
            await until(lambda: len(begun) == 5)
        assert ended == []
        async with service_of(0) as service:
            await service.start()
            await until(lambda: len(ended) == 20)

    run_to_end(steps)
    assert sorted(ended) == list(range(20))


def test_cancelled_stop_still_stops(broker, topic):
    """A service whose stop was cancelled while it waited can be started again, and gets all messages."""
    service = faststream_broker(broker, graceful_timeout=10_000.0)
    begun, ended = [], []

    @service.subscriber(topic, subscription="s", subscription_type=SHARED)
    async def handle(number: int):
        begun.append(number)
        if len(begun) == 1:
            await asyncio.Event().wait()
        ended.append(number)

    async def steps():
        await service.start()
        await service.publish_batch(*range(20), topic=topic)
        await until(lambda: begun)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(service.stop(), 0.2)
        async with service:
            await service.start()
            await until(lambda: len(ended) == 20)

    run_to_end(steps)
    assert sorted(ended) == list(range(20))


def test_cut_connections_lose_nothing(broker, topic, pulsar_fault_proxy):
    """A service whose connections are cut twenty times handles every message that it published."""
    proxy = pulsar_fault_proxy(broker)
    service = faststream_broker(broker, proxy.service_url)
    found, sent = set(), set()

    @service.subscriber(topic, subscription="s", subscription_type=SHARED, max_workers=20)
    async def handle(number: int):
        await asyncio.sleep(0.005)
        found.add(number)

    async def send(numbers):
        for number in numbers:
            await service.publish(number, topic)
            sent.add(number)

    async def cut():
        for _ in range(20):
            await asyncio.sleep(0.1)
            proxy.cut()

    async def steps():
        async with service:
            await service.start()
            await asyncio.gather(cut(), *(send(range(start, MESSAGES, 10)) for start in range(10)))
            await until(lambda: len(found) == MESSAGES)

    run_to_end(steps)
    assert found == sent == set(range(MESSAGES))


def test_requests_during_cuts_are_answered(broker, topic, pulsar_fault_proxy):
    """Each request sent while connections are cut gets its own reply."""
    proxy = pulsar_fault_proxy(broker)
    service = faststream_broker(broker, proxy.service_url)

    @service.subscriber(topic, subscription="s", subscription_type=SHARED, max_workers=20)
    async def double(number: int) -> int:
        return number * 2

    async def ask(numbers):
        return [await (await service.request(number, topic, 60)).decode() for number in numbers]

    async def cut():
        for _ in range(10):
            await asyncio.sleep(0.2)
            proxy.cut()

    async def steps():
        async with service:
            await service.start()
            _, *replies = await asyncio.gather(cut(), *(ask(range(start, 200, 10)) for start in range(10)))
            return replies

    replies = run_to_end(steps)
    assert replies == [[number * 2 for number in range(start, 200, 10)] for start in range(10)]


@pytest.mark.standalone_only("kills the only broker", ways=("cluster",))
def test_killed_broker_loses_nothing(pulsar_own_broker):
    """Every published message is handled although the broker is killed and restarted."""
    broker = pulsar_own_broker("plain")
    topic = "persistent://public/default/killed"
    service = faststream_broker(broker, producer_options={"send_timeout_millis": 0})
    found, sent = set(), set()

    @service.subscriber(topic, subscription="s", subscription_type=SHARED, max_workers=20)
    async def handle(number: int):
        await asyncio.sleep(0.01)
        found.add(number)

    async def send(numbers):
        for number in numbers:
            await service.publish(number, topic)
            sent.add(number)

    async def kill():
        await until(lambda: len(found) >= 100)
        await asyncio.to_thread(broker.kill)
        await asyncio.to_thread(broker.restart)

    async def steps():
        async with service:
            await service.start()
            await asyncio.gather(kill(), *(send(range(start, MESSAGES, 10)) for start in range(10)))
            await until(lambda: len(found) == MESSAGES)

    run_to_end(steps)
    assert found == sent == set(range(MESSAGES))


@pytest.mark.standalone_only("kills the only broker", ways=("cluster",))
def test_stop_after_a_killed_broker_ends(pulsar_own_broker, pulsar_client_factory):
    """A service can be stopped after its broker was killed; unacknowledged messages are redelivered after a restart."""
    broker = pulsar_own_broker("plain")
    topic = "persistent://public/default/stopped"
    service = faststream_broker(broker, operation_timeout_seconds=3)
    found = []

    @service.subscriber(topic, subscription="s", subscription_type=SHARED, max_workers=5)
    async def handle(number: int):
        found.append(number)
        await asyncio.Event().wait()

    async def steps():
        async with service:
            await service.start()
            await service.publish_batch(*range(20), topic=topic)
            await until(lambda: len(found) == 5)
            service.config.broker_config.graceful_timeout = 0.1
            assert await service.ping(timeout=60)
            await asyncio.to_thread(broker.kill)
            assert not await service.ping(timeout=0.5)

    run_to_end(steps)
    broker.restart()
    consumer, again = pulsar_client_factory(broker).subscribe(topic, "s", SHARED), set()
    while len(again) < 20:
        again.add(int(consumer.receive(60_000).data()))
    assert again == set(range(20))
