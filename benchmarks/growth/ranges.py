"""Key ranges: sets of slots, the plan of parts of equal weight, and a reader of many ranges."""

from __future__ import annotations

from typing import Final

from benchmarks.growth.line import OURS, Bench, Line, Watch
from pulsar_ext import KeyHashRanges, MessageId, plan_key_hash_ranges

__all__ = ["LINES"]

_SLOTS: Final = 65_536
_KEYS: Final = 2_000
_LOOKED_UP: Final = 100_000
_MESSAGES: Final = 20_000
_READ_MILLIS: Final = 60_000


def _separate_ranges(count: int) -> list[tuple[int, int]]:
    """Return `count` ranges that do not touch; at most half as many as slots."""
    step = _SLOTS // count
    return [(number * step, number * step + step // 2 - 1) for number in range(count)]


def _run_sets(bench: Bench, watch: Watch) -> None:
    """Make a set of ranges, its complement, their union, its text, and parse the text."""
    ranges = _separate_ranges(bench.size)
    with watch:
        one = KeyHashRanges(ranges)
        other = one.complement()
        assert (one | other).is_full
        assert KeyHashRanges.parse(str(one)) == one


def _run_contains(bench: Bench, watch: Watch) -> None:
    """Check for 100,000 keys if they are in a set of ranges."""
    ranges, keys = KeyHashRanges(_separate_ranges(bench.size)), [f"order-{number}" for number in range(_LOOKED_UP)]
    with watch:
        for key in keys:
            ranges.contains_key(key)


def _run_split(bench: Bench, watch: Watch) -> None:
    """Split a set of ranges into as many parts."""
    ranges = KeyHashRanges(_separate_ranges(bench.size))
    with watch:
        assert len(ranges.split(bench.size)) == bench.size


def _run_plan(bench: Bench, watch: Watch) -> None:
    """Plan parts of equal weight."""
    weights = {slot: slot % 100 + 1 for slot in range(_SLOTS)}
    with watch:
        assert len(plan_key_hash_ranges(weights, bench.size)) == bench.size


def _prepare_reader(bench: Bench) -> None:
    with bench.open() as client:
        producer = client.create_producer(bench.topic, block_if_queue_full=True, max_pending_messages=5000)
        for number in range(_MESSAGES):
            producer.send_async(b"x", None, partition_key=f"order-{number % _KEYS}")
        producer.flush()


def _run_reader(bench: Bench, watch: Watch) -> None:
    """Read the messages in the ranges, of 20,000 messages of 2,000 keys."""
    ranges = KeyHashRanges(_separate_ranges(bench.size))
    wanted = sum(ranges.contains_key(f"order-{number % _KEYS}") for number in range(_MESSAGES))
    with bench.open() as client, watch:
        reader = client.create_reader(bench.topic, MessageId.earliest, key_hash_ranges=ranges)
        for _ in range(wanted):
            reader.read_next(_READ_MILLIS)


_SIZES: Final = (1, 16, 256, 4_096, 16_384, 32_768)
_PARTS: Final = (1, 16, 256, 4_096, 16_384, 65_536)
_QUICK: Final = (16, 256, 1_024)
LINES: Final = (
    Line("key ranges: sets made, united, written and parsed", "ranges", _SIZES, _QUICK, _run_sets, None, OURS, None),
    Line("key ranges: 100,000 keys looked up", "ranges", _SIZES, _QUICK, _run_contains, None, OURS, None),
    Line("key ranges: split into as many parts", "ranges", _SIZES, _QUICK, _run_split, None, OURS, None),
    Line("key ranges: parts of equal weight planned", "parts", _PARTS, _QUICK, _run_plan, None, OURS, None),
    Line("key ranges: a reader of 20,000 messages", "ranges", _SIZES, _QUICK, _run_reader, _prepare_reader, OURS),
)
