"""Acknowledgements: one by one, many pending at once, holes between them, and chunks that no client can acknowledge."""

from __future__ import annotations

import contextlib
import uuid
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pulsar

from benchmarks.growth.line import OURS, Bench, Line, Watch, fill_entries, keep_all, wait_until_acknowledged
from pulsar_ext.admin import CursorInfo, EntryMetadata, InternalStats, LedgerInfo
from pulsar_ext.chunks.leftovers import leftovers_among, unacknowledged
from pulsar_ext.ids.position import Position, PositionRange, PositionRanges

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["LINES"]

_AT_ONCE: Final = 1000
_RECEIVE_MILLIS: Final = 60_000
_CONFIRM_MILLIS: Final = 600_000
_HOUR_MILLIS: Final = 3_600_000


def _prepare(bench: Bench, step: int) -> None:
    keep_all(bench)
    fill_entries(bench, step * bench.size)


def _run(bench: Bench, watch: Watch, step: int) -> None:
    """Receive every message, and acknowledge each `step`th one."""
    with _subscribed(bench) as consumer, watch:
        last = None
        for _ in range(bench.size):
            for _ in range(step):
                last = consumer.receive(_RECEIVE_MILLIS)
            consumer.acknowledge(last)
        _confirm(bench, consumer, last)


def _run_kept(bench: Bench, watch: Watch) -> None:
    """Acknowledge every message, and send no acknowledgement before the flush. Receiving them is not measured."""
    with _subscribed(bench, ack_group_time_ms=_HOUR_MILLIS, max_ack_group_size=bench.size + 1) as consumer:
        last = None
        for first in range(0, bench.size, _AT_ONCE):
            received = [consumer.receive(_RECEIVE_MILLIS) for _ in range(min(_AT_ONCE, bench.size - first))]
            last = received[-1]
            with watch:
                for message in received:
                    consumer.acknowledge(message)
        with watch:
            _confirm(bench, consumer, last)


@contextlib.contextmanager
def _subscribed(bench: Bench, **group: int) -> Iterator[Any]:
    with bench.open() as client:
        consumer = client.subscribe(
            bench.topic,
            uuid.uuid4().hex,
            consumer_type=pulsar.ConsumerType.Shared,
            initial_position=pulsar.InitialPosition.Earliest,
            receiver_queue_size=5000,
            **group,
        )
        yield consumer
        consumer.unsubscribe()


def _confirm(bench: Bench, consumer: Any, last: Any) -> None:
    if bench.is_ours:
        consumer.flush_acks(confirm=True, timeout_ms=_CONFIRM_MILLIS)
    else:
        wait_until_acknowledged(bench, bench.topic, consumer.subscription_name(), last)


def _run_walk(bench: Bench, watch: Watch) -> None:
    """Iterate over the unacknowledged entries of a subscription, every other one."""
    entries = 2 * bench.size
    ranges = PositionRanges.of(PositionRange(Position(1, at - 1), Position(1, at)) for at in range(1, entries, 2))
    cursor = CursorInfo(Position(1, -1), Position(1, entries), ranges, "", active=True, raw={})
    stats = InternalStats(
        (LedgerInfo(1, entries, entries, offloaded=False),),
        Position(1, entries - 1),
        entries,
        0,
        entries,
        0,
        "",
        {"s": cursor},
        raw={},
    )
    with watch:
        for _ in unacknowledged(stats, "s"):
            pass


def _run_leftovers(bench: Bench, watch: Watch) -> None:
    """Classify `size` chunks of a message that has lost its beginning."""
    named: dict[str, Any] = {"producer_name": "p", "sequence_id": 1, "publish_time": 0, "uuid": "a"}
    count = bench.size + 1
    chunks = [EntryMetadata(Position(1, at), chunk_id=at, num_chunks=count, **named) for at in range(1, count)]
    with watch:
        assert len(leftovers_among(chunks, 0).useless) == bench.size


LINES: Final = (
    Line(
        "messages received, each acknowledged and confirmed",
        "messages",
        (1_000, 10_000, 100_000, 300_000, 1_000_000),
        (200, 1_000, 5_000),
        partial(_run, step=1),
        partial(_prepare, step=1),
    ),
    Line(
        "pending acknowledgements, all sent by one flush and confirmed",
        "messages",
        (1_000, 10_000, 100_000, 300_000, 1_000_000),
        (200, 1_000, 5_000),
        _run_kept,
        partial(_prepare, step=1),
        clients=OURS,
    ),
    Line(
        "holes: every other message received is acknowledged and confirmed",
        "holes",
        (100, 1_000, 10_000, 30_000, 100_000),
        (100, 500, 2_500),
        partial(_run, step=2),
        partial(_prepare, step=2),
    ),
    Line(
        "holes, walked over",
        "holes",
        (100, 1_000, 10_000, 30_000, 100_000),
        (100, 500, 2_500),
        _run_walk,
        clients=OURS,
        profile=None,
    ),
    Line(
        "chunks without a beginning, judged",
        "chunks",
        (100, 1_000, 10_000, 30_000, 100_000),
        (100, 1_000, 10_000),
        _run_leftovers,
        clients=OURS,
        profile=None,
    ),
)
