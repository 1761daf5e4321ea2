"""Single run: a process that sends at a constant rate, and one that receives, both with the same client."""

from __future__ import annotations

import time
import uuid
from array import array
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pulsar

import pulsar_ext
from benchmarks.fresh_process import Call, CallError, barrier

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from multiprocessing.synchronize import Barrier

__all__ = ["WAYS", "measure_run"]

_QUIET: Final = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
_LIBS: Final = {"pulsar": pulsar, "pulsar_ext": pulsar_ext}
_PAYLOAD_BYTES: Final = 100
_RECEIVE_MILLIS: Final = 30_000
_PATIENCE_SECONDS: Final = 60.0


def _one_by_one(consumer: Any) -> Iterator[Any]:
    while True:
        yield consumer.receive(_RECEIVE_MILLIS)


def _iterate(consumer: Any) -> Iterator[Any]:
    """Iterate over the consumer, which prefetches; the official one cannot, and receives one by one."""
    return iter(consumer) if isinstance(consumer, pulsar_ext.Consumer) else _one_by_one(consumer)


class Way(NamedTuple):
    """Way to receive and to acknowledge.

    Args:
        messages: yields the messages of a consumer.
        options: of our `subscribe`; the official client always has groups of 100 ms.
        rates: the measured rates in messages per second.
    """

    messages: Callable[[Any], Iterator[Any]]
    options: dict[str, int]
    rates: tuple[int, ...] = (100, 1_000, 10_000)


WAYS: Final = {
    "receive(), acknowledge(), one by one": Way(_one_by_one, {}),
    "receive(), acknowledge(), in groups of 100 ms": Way(_one_by_one, {"ack_group_time_ms": 100}),
    # Each takes some milliseconds, which limits the rate.
    "receive(), acknowledge(), each sent at once": Way(_one_by_one, {"ack_group_time_ms": 0}, (100,)),
    "for message in consumer, acknowledge(), in groups of 100 ms": Way(_iterate, {"ack_group_time_ms": 100}),
}
"""Ways by name; unnamed options have the client's defaults."""


def measure_run(urls: Sequence[str], client: str, way: str, rate: int, seconds: float) -> Sequence[float]:
    """Send `rate` messages per second for `seconds`, and return the latency of each in milliseconds.

    A latency begins when its message was due to be sent, so it includes delays by a slow `send_async`.

    Raises:
        CallError: a process raised, died or hung.
    """
    topic, both = f"persistent://public/default/latency-{uuid.uuid4().hex[:8]}", barrier(2)
    receiving = Call(_receive, urls, client, way, topic, int(rate * seconds), both)
    sending = Call(_send, urls, client, topic, rate, int(rate * seconds), both)
    try:
        found: Sequence[float] = receiving.result(seconds + _PATIENCE_SECONDS)
        sending.result(_PATIENCE_SECONDS)
    except CallError:
        sending.end()
        raise
    return found


def _open(urls: Sequence[str], name: str) -> Any:
    url, admin_url = urls
    return _LIBS[name].Client(url, logger=_QUIET, **({"admin": admin_url} if name == "pulsar_ext" else {}))


def _send(urls: Sequence[str], name: str, topic: str, rate: int, count: int, both: Barrier) -> None:
    client = _open(urls, name)
    producer = client.create_producer(topic, block_if_queue_full=True, max_pending_messages=5000)
    both.wait(_PATIENCE_SECONDS)
    filler = bytes(_PAYLOAD_BYTES - 8)
    begin, period = time.monotonic_ns(), 1_000_000_000 // rate
    for number in range(count):
        due = begin + number * period
        if (early := due - time.monotonic_ns()) > 0:
            time.sleep(early / 1e9)
        producer.send_async(due.to_bytes(8, "big") + filler, None)
    producer.flush()
    client.close()


def _receive(urls: Sequence[str], name: str, way: str, topic: str, count: int, both: Barrier) -> array[float]:
    client = _open(urls, name)
    consumer = client.subscribe(topic, "s", **(WAYS[way].options if name == "pulsar_ext" else {}))
    both.wait(_PATIENCE_SECONDS)
    took = array("d")
    # Both processes read the machine's monotonic clock.
    for message in islice(WAYS[way].messages(consumer), count):
        took.append((time.monotonic_ns() - int.from_bytes(message.data()[:8], "big")) / 1e6)
        consumer.acknowledge(message)
    client.close()
    return took
