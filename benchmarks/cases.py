"""Measured paths, each written once for both clients."""

from __future__ import annotations

import contextlib
import threading
import time
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final

import pulsar
from pulsar import ConsumerType
from pulsar.schema import BytesSchema

from benchmarks.id_cases import (
    compare_ids,
    create_ids,
    deserialize,
    message_id,
    on_ids,
    read_ids,
    serialize_ids,
    sort_ids,
)
from benchmarks.measure import Case, Side
from benchmarks.steps import PAYLOAD, TIMEOUT_MILLIS, Run, for_each, received, repeat_call, subscribed
from pulsar_ext._native.handles import inner_of
from pulsar_ext._native.interruptible import InterruptibleClient
from pulsar_ext._native.signatures import named_arguments

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["CASES"]

_RECEIVE_GOAL: Final = 1.5
_LONG_MILLIS: Final = 600_000
_WAIT_SECONDS: Final = 120.0
_PREFETCH_SECONDS: Final = 0.5


# -- receive -----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _receive(side: Side, calls: int, **options: Any) -> Iterator[Run]:
    with subscribed(side, **options) as consumer:
        consumer.receive()
        yield lambda: repeat_call(consumer.receive, calls)


@contextlib.contextmanager
def _receive_timeout(side: Side, calls: int, **options: Any) -> Iterator[Run]:
    with subscribed(side, **options) as consumer:
        consumer.receive()

        def run() -> None:
            receive = consumer.receive
            for _ in repeat(None, calls):
                receive(TIMEOUT_MILLIS)

        yield run


@contextlib.contextmanager
def _read_next(side: Side, calls: int, **options: Any) -> Iterator[Run]:
    reader = side.client.create_reader(side.topic, side.lib.MessageId.earliest, **options)
    reader.read_next()
    yield lambda: repeat_call(reader.read_next, calls)
    reader.close()


def _prefetched(
    case: Callable[..., contextlib.AbstractContextManager[Run]],
) -> Callable[[Side, int], contextlib.AbstractContextManager[Run]]:
    """Decorate a case: all messages are in the client's queue before the run, independent of broker and network."""

    @contextlib.contextmanager
    def prepared(side: Side, calls: int) -> Iterator[Run]:
        with case(side, calls, receiver_queue_size=2 * calls) as run:
            time.sleep(_PREFETCH_SECONDS)
            yield run

    return prepared


@contextlib.contextmanager
def _receive_id(side: Side, calls: int, **options: Any) -> Iterator[Run]:
    with subscribed(side, **options) as consumer:
        consumer.receive()

        def run() -> None:
            receive = consumer.receive
            for _ in repeat(None, calls):
                receive().message_id()

        yield run


@contextlib.contextmanager
def _receive_and_acknowledge(side: Side, calls: int, **options: Any) -> Iterator[Run]:
    with subscribed(side, **options) as consumer:
        consumer.receive()

        def run() -> None:
            receive, acknowledge = consumer.receive, consumer.acknowledge
            for _ in repeat(None, calls):
                message = receive()
                message.data()
                message.message_id()
                acknowledge(message)

        yield run


@contextlib.contextmanager
def _batch_receive(side: Side, calls: int, **options: Any) -> Iterator[Run]:
    policy = side.lib.ConsumerBatchReceivePolicy(1000, 10_000_000, 100)
    with subscribed(side, batch_receive_policy=policy, **options) as consumer:

        def run() -> None:
            left = calls
            while left > 0:
                left -= len(consumer.batch_receive())

        yield run


@contextlib.contextmanager
def _listen(side: Side, calls: int) -> Iterator[Run]:
    # The listener waits for the start of the run: the messages before it do not count.
    begin, done = threading.Event(), threading.Event()
    left = [calls]

    def listener(_: Any, __: Any) -> None:
        if left[0] == calls:
            begin.wait(_WAIT_SECONDS)
        left[0] -= 1
        if left[0] == 0:
            done.set()

    def run() -> None:
        begin.set()
        if not done.wait(_WAIT_SECONDS):
            raise TimeoutError("the listener has not received all messages")

    with subscribed(side, message_listener=listener):
        yield run


# -- acknowledge -------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _acknowledge(side: Side, calls: int) -> Iterator[Run]:
    with received(side, calls) as (consumer, messages):
        yield lambda: for_each(consumer.acknowledge, messages)


@contextlib.contextmanager
def _acknowledge_id(side: Side, calls: int) -> Iterator[Run]:
    with received(side, calls) as (consumer, messages):
        ids = [message.message_id() for message in messages]
        yield lambda: for_each(consumer.acknowledge, ids)


@contextlib.contextmanager
def _acknowledge_cumulative(side: Side, calls: int) -> Iterator[Run]:
    with received(side, calls) as (consumer, messages):
        yield lambda: for_each(consumer.acknowledge_cumulative, messages)


@contextlib.contextmanager
def _negative_acknowledge(side: Side, calls: int) -> Iterator[Run]:
    # Long after the end of the run, so that it includes no redelivery.
    options = {"consumer_type": side.lib.ConsumerType.Shared, "negative_ack_redelivery_delay_ms": _LONG_MILLIS}
    with received(side, calls, **options) as (consumer, messages):
        yield lambda: for_each(consumer.negative_acknowledge, messages)


# -- send --------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _send(side: Side, calls: int) -> Iterator[Run]:
    producer = side.client.create_producer(side.scratch)
    producer.send(PAYLOAD)

    def run() -> None:
        for _ in repeat(None, calls):
            producer.send(PAYLOAD)

    yield run
    producer.close()


@contextlib.contextmanager
def _send_async(side: Side, calls: int, **options: Any) -> Iterator[Run]:
    producer = side.client.create_producer(side.scratch, block_if_queue_full=True, **options)
    producer.send(PAYLOAD)
    done = threading.Event()
    left = [calls]

    def callback(_: Any, __: Any) -> None:
        left[0] -= 1
        if left[0] == 0:
            done.set()

    def run() -> None:
        for _ in repeat(None, calls):
            producer.send_async(PAYLOAD, callback)
        producer.flush()
        if not done.wait(_WAIT_SECONDS):
            raise TimeoutError("not all callbacks were called")

    yield run
    producer.close()


def _send_async_batched(side: Side, calls: int) -> contextlib.AbstractContextManager[Run]:
    return _send_async(side, calls, batching_enabled=True)


# -- messages ----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _read_message(side: Side, calls: int) -> Iterator[Run]:
    with received(side, calls) as (_, messages):

        def run() -> None:
            for message in messages:
                message.data()
                message.partition_key()
                message.publish_timestamp()

        yield run


# -- opening -----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _open(open_one: Callable[[], Any], calls: int) -> Iterator[Run]:
    opened: list[Any] = []

    yield lambda: opened.extend(open_one() for _ in repeat(None, calls))
    for one in opened:
        one.close()


def _subscribe(side: Side, calls: int) -> contextlib.AbstractContextManager[Run]:
    return _open(lambda: side.client.subscribe(side.scratch, "opened", ConsumerType.Shared), calls)


def _ask_to_subscribe(side: Side, calls: int) -> contextlib.AbstractContextManager[Run]:
    """Limit ours to the C++ client's asynchronous call, whose result survives Ctrl-C, and return the C++ consumer."""
    if side.lib is pulsar:
        return _subscribe(side, calls)
    asking = InterruptibleClient(side.client.inner, side.client.context.senders.ask)
    arguments = side.scratch, "opened", ConsumerType.Shared
    named = named_arguments(pulsar.Client.subscribe, arguments, {"schema": BytesSchema()})
    return _open(lambda: inner_of(asking.open_consumer(**named)), calls)


def _create_producer(side: Side, calls: int) -> contextlib.AbstractContextManager[Run]:
    return _open(lambda: side.client.create_producer(side.scratch), calls)


_MANY, _SOME, _FEW = 40_000, 20_000, 400
_NONE: Final = 0.0
"""Goal of a part of a path: an official id is a bare C++ object, and ours one that knows its chunks, hashes and
pickles. And of opening: the asynchronous call, which Ctrl-C or a close can end, takes longer than the official one."""

CASES: Final = (
    Case("receive()", _MANY, _receive, _RECEIVE_GOAL),
    Case("receive(timeout)", _MANY, _receive_timeout),
    Case("read_next()", _MANY, _read_next, _RECEIVE_GOAL),
    Case("batch_receive()", _MANY, _batch_receive),
    Case("a listener", _MANY, _listen, threads=True),
    Case("receive(), message_id()", _MANY, _receive_id),
    Case("receive(), data(), message_id(), acknowledge()", _MANY, _receive_and_acknowledge),
    Case("receive(), prefetched", _SOME, _prefetched(_receive), _RECEIVE_GOAL),
    Case("receive(timeout), prefetched", _SOME, _prefetched(_receive_timeout)),
    Case("read_next(), prefetched", _SOME, _prefetched(_read_next), _RECEIVE_GOAL),
    Case("batch_receive(), prefetched", _SOME, _prefetched(_batch_receive)),
    Case("receive(), message_id(), prefetched", _SOME, _prefetched(_receive_id)),
    Case(
        "receive(), data(), message_id(), acknowledge(), prefetched",
        _SOME,
        _prefetched(_receive_and_acknowledge),
    ),
    Case("acknowledge(message)", _SOME, _acknowledge),
    Case("acknowledge(id)", _SOME, _acknowledge_id),
    Case("acknowledge_cumulative(message)", _SOME, _acknowledge_cumulative),
    Case("negative_acknowledge(message), Shared", _SOME, _negative_acknowledge),
    Case("send()", _FEW, _send),
    Case("send_async(callback)", _SOME // 4, _send_async, threads=True),
    Case("send_async(callback), batched", _SOME, _send_async_batched, threads=True),
    Case("data(), partition_key(), publish_timestamp()", _SOME, _read_message),
    Case("subscribe()", _FEW, _subscribe, _NONE, threads=True),
    Case("subscribe(), as far as the C++ client's asynchronous call", _FEW, _ask_to_subscribe, _NONE, threads=True),
    Case("create_producer()", _FEW, _create_producer, _NONE, threads=True),
    Case("message_id()", _SOME, message_id, _NONE),
    Case("MessageId(…)", _SOME, on_ids(create_ids), _NONE),
    Case("id < id, id == id", _SOME, on_ids(compare_ids), _NONE),
    Case("sort shuffled ids", _SOME, on_ids(sort_ids), _NONE),
    Case("id.ledger_id(), id.entry_id()", _SOME, on_ids(read_ids), _NONE),
    Case("id.serialize()", _SOME, on_ids(serialize_ids), _NONE),
    Case("MessageId.deserialize()", _SOME, deserialize, _NONE),
)
"""Cases in the order of the table. `hash(id)` is excluded: official ids are not hashable."""
