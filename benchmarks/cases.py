"""The paths that are measured, each written once for both clients."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final

from benchmarks.measure import Case, Side

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["CASES", "fill"]

_RECEIVE_GOAL: Final = 1.5
_TIMEOUT_MILLIS: Final = 30_000
_LONG_MILLIS: Final = 600_000
_BATCH: Final = 500
_PAYLOAD: Final = b"x" * 100
_WAIT_SECONDS: Final = 120.0
_PREFETCH_SECONDS: Final = 0.5

Run = "Callable[[], object]"


def fill(client: Any, topic: str, messages: int) -> None:
    """Send `messages` messages of 100 bytes in batches of 500."""
    producer = client.create_producer(
        topic,
        batching_enabled=True,
        batching_max_messages=_BATCH,
        batching_max_publish_delay_ms=1000,
        max_pending_messages=10 * _BATCH,
        block_if_queue_full=True,
    )
    for _ in repeat(None, messages):
        producer.send_async(_PAYLOAD, None)
    producer.flush()
    producer.close()


@contextlib.contextmanager
def _subscribed(side: Side, **options: Any) -> Iterator[Any]:
    """Give a consumer of all messages whose subscription is gone afterwards."""
    consumer = side.client.subscribe(
        side.topic, f"bench-{side.lib.__name__}", initial_position=side.lib.InitialPosition.Earliest, **options
    )
    try:
        yield consumer
    finally:
        consumer.unsubscribe()
        consumer.close()


@contextlib.contextmanager
def _received(side: Side, calls: int, **options: Any) -> Iterator[tuple[Any, list[Any]]]:
    """Give a consumer that acknowledges, and the messages that it has received since."""
    with _subscribed(side, **options) as consumer:
        consumer.acknowledge(consumer.receive(_TIMEOUT_MILLIS))
        yield consumer, [consumer.receive(_TIMEOUT_MILLIS) for _ in range(calls)]


# -- receive -----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _receive(side: Side, calls: int, **options: Any) -> Iterator[Run]:
    with _subscribed(side, **options) as consumer:
        consumer.receive()
        yield lambda: _repeat(consumer.receive, calls)


@contextlib.contextmanager
def _receive_timeout(side: Side, calls: int, **options: Any) -> Iterator[Run]:
    with _subscribed(side, **options) as consumer:
        consumer.receive()

        def run() -> None:
            receive = consumer.receive
            for _ in repeat(None, calls):
                receive(_TIMEOUT_MILLIS)

        yield run


@contextlib.contextmanager
def _read_next(side: Side, calls: int, **options: Any) -> Iterator[Run]:
    reader = side.client.create_reader(side.topic, side.lib.MessageId.earliest, **options)
    reader.read_next()
    yield lambda: _repeat(reader.read_next, calls)
    reader.close()


def _prefetched(
    case: Callable[..., contextlib.AbstractContextManager[Run]],
) -> Callable[[Side, int], contextlib.AbstractContextManager[Run]]:
    """Have all messages in the client's queue before the run: the broker and the network have no part in it."""

    @contextlib.contextmanager
    def prepared(side: Side, calls: int) -> Iterator[Run]:
        with case(side, calls, receiver_queue_size=2 * calls) as run:
            time.sleep(_PREFETCH_SECONDS)
            yield run

    return prepared


@contextlib.contextmanager
def _receive_id(side: Side, calls: int, **options: Any) -> Iterator[Run]:
    with _subscribed(side, **options) as consumer:
        consumer.receive()

        def run() -> None:
            receive = consumer.receive
            for _ in repeat(None, calls):
                receive().message_id()

        yield run


@contextlib.contextmanager
def _receive_and_acknowledge(side: Side, calls: int, **options: Any) -> Iterator[Run]:
    with _subscribed(side, **options) as consumer:
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
    with _subscribed(side, batch_receive_policy=policy, **options) as consumer:

        def run() -> None:
            left = calls
            while left > 0:
                left -= len(consumer.batch_receive())

        yield run


@contextlib.contextmanager
def _listen(side: Side, calls: int) -> Iterator[Run]:
    # The listener waits for the run to begin: until then the messages are not part of it.
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
            raise TimeoutError("the listener has not heard all messages")

    with _subscribed(side, message_listener=listener):
        yield run


# -- acknowledge -------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _acknowledge(side: Side, calls: int) -> Iterator[Run]:
    with _received(side, calls) as (consumer, messages):
        yield lambda: _for_each(consumer.acknowledge, messages)


@contextlib.contextmanager
def _acknowledge_id(side: Side, calls: int) -> Iterator[Run]:
    with _received(side, calls) as (consumer, messages):
        ids = [message.message_id() for message in messages]
        yield lambda: _for_each(consumer.acknowledge, ids)


@contextlib.contextmanager
def _acknowledge_cumulative(side: Side, calls: int) -> Iterator[Run]:
    with _received(side, calls) as (consumer, messages):
        yield lambda: _for_each(consumer.acknowledge_cumulative, messages)


@contextlib.contextmanager
def _negative_acknowledge(side: Side, calls: int) -> Iterator[Run]:
    # Far beyond the end of the run, so that nothing is redelivered in it.
    options = {"consumer_type": side.lib.ConsumerType.Shared, "negative_ack_redelivery_delay_ms": _LONG_MILLIS}
    with _received(side, calls, **options) as (consumer, messages):
        yield lambda: _for_each(consumer.negative_acknowledge, messages)


# -- send --------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _send(side: Side, calls: int) -> Iterator[Run]:
    producer = side.client.create_producer(side.scratch)
    producer.send(_PAYLOAD)

    def run() -> None:
        for _ in repeat(None, calls):
            producer.send(_PAYLOAD)

    yield run
    producer.close()


@contextlib.contextmanager
def _send_async(side: Side, calls: int, **options: Any) -> Iterator[Run]:
    producer = side.client.create_producer(side.scratch, block_if_queue_full=True, **options)
    producer.send(_PAYLOAD)
    done = threading.Event()
    left = [calls]

    def callback(_: Any, __: Any) -> None:
        left[0] -= 1
        if left[0] == 0:
            done.set()

    def run() -> None:
        for _ in repeat(None, calls):
            producer.send_async(_PAYLOAD, callback)
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
    with _received(side, calls) as (_, messages):

        def run() -> None:
            for message in messages:
                message.data()
                message.partition_key()
                message.publish_timestamp()

        yield run


# -- message ids -------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _message_id(side: Side, calls: int) -> Iterator[Run]:
    with _received(side, calls) as (_, messages):

        def run() -> None:
            for message in messages:
                message.message_id()

        yield run


@contextlib.contextmanager
def _ids(side: Side, calls: int, use: Callable[[Any, list[Any]], object]) -> Iterator[Run]:
    with _received(side, calls) as (_, messages):
        ids = [message.message_id() for message in messages]
        yield lambda: use(side.lib, ids)


def _create_ids(lib: Any, ids: list[Any]) -> None:
    create = lib.MessageId
    for number, _ in enumerate(ids):
        create(-1, 5, number, 0)


def _compare_ids(_: Any, ids: list[Any]) -> None:
    first = ids[0]
    for one in ids:
        one < first  # noqa: B015  # the comparison is what is measured
        one == first  # noqa: B015


def _sort_ids(_: Any, ids: list[Any]) -> None:
    random.Random(len(ids)).shuffle(ids)
    ids.sort()


def _serialize_ids(_: Any, ids: list[Any]) -> None:
    for one in ids:
        one.serialize()


def _read_ids(_: Any, ids: list[Any]) -> None:
    for one in ids:
        one.ledger_id()
        one.entry_id()


@contextlib.contextmanager
def _deserialize(side: Side, calls: int) -> Iterator[Run]:
    with _received(side, calls) as (_, messages):
        texts = [message.message_id().serialize() for message in messages]
        yield lambda: _for_each(side.lib.MessageId.deserialize, texts)


def _on_ids(use: Callable[[Any, list[Any]], object]) -> Callable[..., contextlib.AbstractContextManager[Run]]:
    return lambda side, calls: _ids(side, calls, use)


# -- loops -------------------------------------------------------------------------------------------------------------


def _repeat(call: Callable[[], object], calls: int) -> None:
    for _ in repeat(None, calls):
        call()


def _for_each(call: Callable[[Any], object], values: list[Any]) -> None:
    for value in values:
        call(value)


_MANY, _SOME, _FEW = 40_000, 20_000, 400
_NONE: Final = 0.0
"""Of a part of a path: an official id is a bare C++ object, and ours one that knows its chunks, hashes and pickles."""

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
    Case("message_id()", _SOME, _message_id, _NONE),
    Case("MessageId(…)", _SOME, _on_ids(_create_ids), _NONE),
    Case("id < id, id == id", _SOME, _on_ids(_compare_ids), _NONE),
    Case("sort shuffled ids", _SOME, _on_ids(_sort_ids), _NONE),
    Case("id.ledger_id(), id.entry_id()", _SOME, _on_ids(_read_ids), _NONE),
    Case("id.serialize()", _SOME, _on_ids(_serialize_ids), _NONE),
    Case("MessageId.deserialize()", _SOME, _deserialize, _NONE),
)
"""In the order of the table. `hash(id)` is not among them: an official id has none."""
