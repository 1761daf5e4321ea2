"""Common steps of the measured paths: fill topics, open consumers, repeat calls."""

from __future__ import annotations

import contextlib
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.measure import Side

__all__ = ["PAYLOAD", "TIMEOUT_MILLIS", "Run", "fill", "for_each", "received", "repeat_call", "subscribed"]

TIMEOUT_MILLIS: Final = 30_000
_BATCH: Final = 500
PAYLOAD: Final = b"x" * 100

Run = "Callable[[], object]"
"""Type of a timed run."""


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
        producer.send_async(PAYLOAD, None)
    producer.flush()
    producer.close()


@contextlib.contextmanager
def subscribed(side: Side, **options: Any) -> Iterator[Any]:
    """Yield a consumer of all messages, whose subscription is deleted afterwards."""
    consumer = side.client.subscribe(
        side.topic, f"bench-{side.lib.__name__}", initial_position=side.lib.InitialPosition.Earliest, **options
    )
    try:
        yield consumer
    finally:
        consumer.unsubscribe()
        consumer.close()


@contextlib.contextmanager
def received(side: Side, calls: int, **options: Any) -> Iterator[tuple[Any, list[Any]]]:
    """Yield a consumer that has acknowledged one message, and the messages it has received since."""
    with subscribed(side, **options) as consumer:
        consumer.acknowledge(consumer.receive(TIMEOUT_MILLIS))
        yield consumer, [consumer.receive(TIMEOUT_MILLIS) for _ in range(calls)]


def repeat_call(call: Callable[[], object], calls: int) -> None:
    for _ in repeat(None, calls):
        call()


def for_each(call: Callable[[Any], object], values: list[Any]) -> None:
    for value in values:
        call(value)
