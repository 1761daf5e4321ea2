"""Handlers: a message is acknowledged when its handler returns; `on_error` decides about the others."""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextvars import ContextVar
from functools import partial

import pytest
from acked import TYPES, send_batches, send_plain
from awaited import Awaited
from chunked import drain, eventually, index_of, payload
from stored import compact

import pulsar_ext as pulsar

BOTH_CLIENTS = True
SHARED = pulsar.ConsumerType.Shared


class Processing:
    """A `process()` on a thread, and what its handler received."""

    def __init__(self, consumer, handle=lambda _: None, **options):
        self._consumer, self._handle, self._options = consumer, handle, options
        self._lock = threading.Lock()
        self.begun, self.running, self.most, self.error = Counter(), 0, 0, None
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        while self._thread.is_alive():  # it may not have begun
            self._consumer.stop_processing()
            self._thread.join(0.1)

    def join(self):
        self._thread.join(60)
        assert not self._thread.is_alive()

    def _run(self):
        handler = self._see
        if isinstance(self._consumer, Awaited):
            handler = in_threads(self._see)
        try:
            self._consumer.process(handler, **self._options)
        except BaseException as error:  # noqa: BLE001  # a test checks it
            self.error = error

    def _see(self, message):
        with self._lock:
            self.begun[index_of(message)] += 1
            self.running += 1
            self.most = max(self.most, self.running)
        try:
            self._handle(message)
        finally:
            with self._lock:
                self.running -= 1


def in_threads(handle):
    """Return an async function that runs `handle` on a thread."""
    import asyncio  # noqa: PLC0415

    async def handler(message):
        await asyncio.to_thread(handle, message)

    return handler


def backlog_of(admin, topic):
    return admin.stats(topic, precise_backlog=True).subscriptions["s"].backlog_entries


@pytest.fixture
def is_done(admin, topic):
    """Return a function that returns whether the subscription has no backlog."""
    return lambda name=topic: backlog_of(admin, name) == 0


def send_each_kind(client, topic):
    """Send two batches of five, a chunked message and a plain one: 0 to 11."""
    send_batches(client, topic, 2)
    client.create_producer(topic, chunking_enabled=True).send(payload(10))
    send_plain(client, topic, 1, start=11)


@pytest.mark.core(awaited=True)
@pytest.mark.parametrize("type_", TYPES)
@pytest.mark.through
def test_each_message_is_handled_and_acknowledged(client, topic, is_done, type_):
    """With each subscription type, every message of each kind is handled once, four at a time, and acknowledged."""
    consumer = client.subscribe(topic, "s", type_)
    send_each_kind(client, topic)
    processing = Processing(consumer, lambda _: time.sleep(0.05), concurrency=4)
    with processing:
        assert eventually(lambda: len(processing.begun) == 12)
        assert eventually(is_done)
    assert set(processing.begun.values()) == {1}
    assert 1 < processing.most <= 4
    assert processing.error is None


@pytest.mark.core
def test_concurrency_of_1_keeps_the_order(client, topic):
    """With a concurrency of 1 the handler gets the messages one after the other, in order."""
    consumer, order = client.subscribe(topic, "s"), []
    send_plain(client, topic, 200)
    processing = Processing(consumer, lambda message: order.append(index_of(message)), concurrency=1)
    with processing:
        assert eventually(lambda: len(order) == 200)
    assert order == list(range(200))
    assert processing.most == 1


def fail_once(broken):
    """Return a handler that fails once for some messages."""
    seen = Counter()

    def handle(message):
        number = index_of(message)
        seen[number] += 1
        if number in broken and seen[number] == 1:
            raise ValueError(number)

    return handle


@pytest.mark.core
def test_failed_message_is_redelivered(client, topic, is_done):
    """By default a message whose handler raised is redelivered, and acknowledged when its handler returns."""
    consumer = client.subscribe(topic, "s", SHARED, negative_ack_redelivery_delay_ms=100)
    send_plain(client, topic, 20)
    processing = Processing(consumer, fail_once({3, 7}), concurrency=4)
    with processing:
        assert eventually(lambda: len(processing.begun) == 20 and processing.begun[3] + processing.begun[7] >= 4)
        assert eventually(is_done)
    assert all(processing.begun[number] == 1 for number in range(20) if number not in (3, 7))


def test_message_is_redelivered_if_the_backoff_fails(client, topic, is_done):
    """A message with more redeliveries than the subscription's backoff supports is redelivered without an error."""
    consumer = client.subscribe(topic, "s", SHARED, negative_ack_redelivery_backoff=[100, 200].__getitem__)
    send_plain(client, topic, 5)
    seen = Counter()

    def handle(message):
        seen[index_of(message)] += 1
        if index_of(message) == 2 and seen[2] < 5:
            raise ValueError(message)

    processing = Processing(consumer, handle)
    with processing:
        assert eventually(lambda: processing.begun[2] == 5)
        assert eventually(is_done)
    assert all(seen[number] == 1 for number in range(5) if number != 2)


@pytest.mark.core
def test_dead_letter_policy_limits_redeliveries(client, topic, is_done):
    """With a dead letter policy, a message that always fails becomes a dead letter after its redeliveries."""
    dead = client.subscribe(topic + "-dead", "d")
    consumer = client.subscribe(
        topic,
        "s",
        SHARED,
        negative_ack_redelivery_delay_ms=100,
        dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(2, topic + "-dead"),
    )
    send_plain(client, topic, 5)

    def handle(message):
        if index_of(message) == 2:
            raise ValueError(2)

    processing = Processing(consumer, handle, concurrency=2)
    with processing:
        assert [index_of(one) for one in drain(dead.receive, 1)] == [2]
        assert eventually(is_done)
    assert processing.begun[2] == 3


def fail_always(message):
    raise ValueError(index_of(message))


@pytest.mark.parametrize("type_", TYPES)
def test_retry_letters_and_then_a_dead_letter(client, topic, is_done, type_):
    """With `ReconsumeLater` and a backoff, each message is handled 1 + 2 times, and is then a dead letter."""
    dead = client.subscribe(f"{topic}-s-DLQ", "d")
    policy = pulsar.ConsumerDeadLetterPolicy(2)
    consumer = client.subscribe(topic, "s", type_, enable_retry=True, dead_letter_policy=policy)
    send_each_kind(client, topic)
    backoff = pulsar.MultiplierRedeliveryBackoff(50, 1_000)
    later = pulsar.ReconsumeLater(backoff, {"why": "busy"})
    processing = Processing(consumer, fail_always, concurrency=4, on_error=later)
    with processing:
        letters = drain(dead.receive, 12)
        assert eventually(lambda: is_done() and is_done(f"{topic}-s-RETRY"))
    assert sorted(map(index_of, letters)) == list(range(12))
    assert {letter.properties()["why"] for letter in letters} == {"busy"}
    assert processing.begun == dict.fromkeys(range(12), 3)


def test_on_error_function_chooses_the_action(client, topic, is_done):
    """`on_error` gets the message and the error, and returns the action; if it raises, the message is redelivered."""
    dead = client.subscribe(f"{topic}-s-DLQ", "d")
    consumer = client.subscribe(topic, "s", SHARED, enable_retry=True, negative_ack_redelivery_delay_ms=100)
    send_plain(client, topic, 5)
    asked = Counter()

    def handle(message):
        number = index_of(message)
        if number < 4 and not (number == 3 and asked[3]):
            raise ValueError(number)

    def on_error(message, error):
        assert error.args == (index_of(message),)
        number = index_of(message)
        asked[number] += 1
        if number == 3:
            raise RuntimeError("on_error fails")
        again = pulsar.ReconsumeLater(10) if asked[0] == 1 else pulsar.Acknowledge()
        return {0: again, 1: pulsar.DeadLetter({"reason": "poison"}), 2: pulsar.Acknowledge()}[number]

    processing = Processing(consumer, handle, concurrency=1, on_error=on_error)
    with processing:
        (letter,) = drain(dead.receive, 1)
        assert eventually(lambda: processing.begun == {0: 2, 1: 1, 2: 1, 3: 2, 4: 1})
        assert eventually(lambda: is_done() and is_done(f"{topic}-s-RETRY"))
    assert index_of(letter) == 1
    assert letter.properties()["reason"] == "poison"
    assert letter.properties()["REAL_SUBSCRIPTION"] == "s"
    assert asked == {0: 2, 1: 1, 2: 1, 3: 1}


@pytest.mark.core
def test_stop_keeps_unhandled_messages(client, topic, is_done, admin):
    """Running handlers end and are acknowledged; other messages are delivered to the next consumer."""
    consumer = client.subscribe(topic, "s", SHARED)
    send_plain(client, topic, 10)
    began, may_end = threading.Event(), threading.Event()

    def handle(_):
        began.set()
        may_end.wait(30)

    processing = Processing(consumer, handle, concurrency=2)
    with processing:
        assert eventually(lambda: processing.running == 2)
        consumer.stop_processing()
        time.sleep(0.3)  # enough time to begin more
        may_end.set()
        processing.join()
    handled = set(processing.begun)
    assert len(handled) == 2
    assert eventually(lambda: backlog_of(admin, topic) == 8)
    assert {index_of(one) for one in drain(consumer.receive, 8)} == set(range(10)) - handled
    consumer.close()
    rest = drain(client.subscribe(topic, "s", SHARED).receive, 8)
    assert {index_of(one) for one in rest} == set(range(10)) - handled


def test_handlers_have_the_context_of_the_caller(client, topic):
    """Handlers run in a copy of the context of the `process()` call, on any thread."""
    caller, seen = ContextVar("caller"), []
    consumer = client.subscribe(topic, "s")
    send_plain(client, topic, 1)

    def handle(_):
        seen.append(caller.get(None))
        consumer.stop_processing()

    caller.set("this test")
    consumer.process(in_threads(handle) if isinstance(consumer, Awaited) else handle)
    assert seen == ["this test"]


class TestStopInABatch:
    """A stop after the first messages of a batch."""

    @pytest.fixture(params=["plain", "batch-index-acks"])
    def broker(self, pulsar_broker_factory, request):
        """Return a broker that keeps whole batches only, and one that keeps acknowledgements inside batches."""
        return pulsar_broker_factory(request.param)

    @pytest.mark.parametrize("concurrency", [1, 3])
    @pytest.mark.parametrize("partitions", [0, 2])
    def test_stop_in_a_batch_repeats_nothing(self, client, admin, topic, concurrency, partitions):
        """The next worker gets exactly the messages that the first one did not handle."""
        if partitions:
            admin.create_partitioned_topic(topic, partitions)
        consumer = client.subscribe(topic, "s", SHARED)
        send_batches(client, topic, 4, 10)

        def handle(_):
            if len(processing.begun) == 3:
                consumer.stop_processing()

        processing = Processing(consumer, handle, concurrency=concurrency)
        with processing:
            processing.join()
        consumer.close()
        rest = {
            index_of(one) for one in drain(client.subscribe(topic, "s", SHARED).receive, 40 - len(processing.begun))
        }
        assert set(processing.begun.values()) == {1}
        assert rest == set(range(40)) - set(processing.begun)

    def test_stop_in_a_compacted_batch_ends_with_it(self, client, admin, topic):
        """The batches after a compacted batch without its last message are not handled."""
        subscribe = partial(client.subscribe, topic, "s", pulsar.ConsumerType.Failover, is_read_compacted=True)
        consumer = subscribe()
        with client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=1_000) as producer:
            for batch in range(0, 12, 3):
                keys = [str(batch), str(batch + 1), "removed"]
                producer.send_many([payload(batch + one) for one in range(3)], partition_keys=keys)
            producer.send(b"", partition_key="removed")
        consumer.close()
        compact(admin, topic)
        consumer = subscribe()
        processing = Processing(consumer, lambda _: consumer.stop_processing(), concurrency=1)
        with processing:
            processing.join()
        consumer.close()
        rest = [index_of(one) for one in drain(subscribe().receive, 6)]
        assert sorted([*processing.begun, *rest]) == [0, 1, 3, 4, 6, 7, 9, 10]

    def test_stop_respects_the_batch_timeout(self, client, topic):
        """With `batch_timeout_ms=0` no more messages are handled after the stop."""
        consumer = client.subscribe(topic, "s", SHARED)
        send_batches(client, topic, 1, 10)
        with Processing(
            consumer, lambda _: consumer.stop_processing(), concurrency=1, batch_timeout_ms=0
        ) as processing:
            processing.join()
        assert set(processing.begun) == {0}


def test_handler_may_stop_processing(client, topic, admin):
    """After `stop_processing()` in a handler its message is acknowledged, and `process()` returns."""
    consumer = client.subscribe(topic, "s")
    send_plain(client, topic, 5)
    processing = Processing(consumer, lambda _: consumer.stop_processing(), concurrency=1)
    with processing:
        processing.join()
    assert processing.begun == {0: 1}
    assert eventually(lambda: backlog_of(admin, topic) == 4)


def test_close_ends_process_and_loses_no_message(client, topic):
    """At a close, the message of a running handler and all others are redelivered."""
    consumer = client.subscribe(topic, "s")
    send_plain(client, topic, 5)
    began, may_end = threading.Event(), threading.Event()

    def handle(_):
        began.set()
        may_end.wait(30)

    processing = Processing(consumer, handle, concurrency=1)
    with processing:
        assert began.wait(30)
        consumer.close()
        may_end.set()
        processing.join()
    assert processing.error is None
    assert [index_of(one) for one in drain(client.subscribe(topic, "s").receive, 5)] == list(range(5))
    with pytest.raises(pulsar.AlreadyClosed):
        consumer.process(lambda _: None)


@pytest.mark.core
def test_pause_stops_handlers(client, topic, is_done):
    """Handlers never begin during a pause; after it every message is handled."""
    consumer = client.subscribe(topic, "s")
    consumer.pause()
    processing = Processing(consumer, concurrency=3)
    with processing:
        send_plain(client, topic, 20)
        assert not eventually(lambda: bool(processing.begun), 1.0)
        consumer.resume()
        assert eventually(lambda: len(processing.begun) == 20)
        assert eventually(is_done)


def test_seek_during_process(client, topic, is_done):
    """After a seek all messages are handled again, and acknowledged."""
    consumer = client.subscribe(topic, "s")
    send_plain(client, topic, 20)
    processing = Processing(consumer, concurrency=3)
    with processing:
        assert eventually(lambda: len(processing.begun) == 20)
        consumer.seek(pulsar.MessageId.earliest)
        assert eventually(lambda: all(processing.begun[number] > 1 for number in range(20)))
        assert eventually(is_done)


@pytest.mark.core
def test_invalid_arguments_of_process_raise(client, topic):
    """Missing retry letters, invalid numbers and handlers raise before a message is received."""
    consumer = client.subscribe(topic, "s")
    send_plain(client, topic, 1)
    for handler, options in (
        (None, {}),
        (print, {"concurrency": 0}),
        (print, {"on_error": "retry"}),
        (print, {"on_error": pulsar.ReconsumeLater(1)}),
        (print, {"on_error": pulsar.DeadLetter()}),
    ):
        with pytest.raises(pulsar.InvalidUse):
            consumer.process(handler, **options)
    assert index_of(consumer.receive(10_000)) == 0


@pytest.mark.blocking_only("the awaited one awaits it")
def test_async_handler_raises(client, topic, admin):
    """An async function is not called; a function that returns an awaitable has its message redelivered."""

    async def handle(_):
        raise AssertionError

    consumer = client.subscribe(topic, "s", negative_ack_redelivery_delay_ms=100)
    send_plain(client, topic, 1)
    with pytest.raises(pulsar.InvalidUse, match=r"pulsar_ext\.asyncio"):
        consumer.process(handle)
    calls = []

    def hidden(message):
        calls.append(message)
        if len(calls) == 3:
            consumer.stop_processing()
        return handle(message)

    consumer.process(hidden)
    assert len(calls) == 3
    assert backlog_of(admin, topic) == 1


@pytest.mark.blocking_only("a task that raises this ends the loop")
def test_system_exit_in_a_handler(client, topic):
    """`SystemExit` in a handler is raised by `process()` after the other handlers; its message is redelivered."""
    consumer = client.subscribe(topic, "s", SHARED, negative_ack_redelivery_delay_ms=100)
    send_plain(client, topic, 5)
    ended = []

    def handle(message):
        if index_of(message) == 0:
            raise SystemExit(3)
        time.sleep(0.5)
        ended.append(index_of(message))

    with pytest.raises(SystemExit):
        consumer.process(handle, concurrency=3)
    assert {index_of(one) for one in drain(consumer.receive, 5 - len(ended))} == set(range(5)) - set(ended)


def test_two_process_calls_share_messages(client, topic, is_done):
    """Two `process()` calls of one consumer share its messages, and one stop ends both."""
    consumer = client.subscribe(topic, "s")
    send_plain(client, topic, 100)
    with Processing(consumer, concurrency=2) as one, Processing(consumer, concurrency=2) as other:
        assert eventually(lambda: len(one.begun + other.begun) == 100)
        assert eventually(is_done)
    assert set((one.begun + other.begun).values()) == {1}


def test_process_with_a_listener_raises(client, topic):
    """A consumer with a listener raises at `process()`, and names the reason."""
    consumer = client.subscribe(topic, "s", message_listener=lambda *_: None)
    with pytest.raises(pulsar.InvalidConfiguration, match="go to its message_listener"):
        consumer.process(lambda _: None)
