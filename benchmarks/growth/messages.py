"""Single messages: their size, and their number of chunks."""

from __future__ import annotations

import uuid
from typing import Final

import pulsar

from benchmarks.growth.line import Bench, Line, Watch, wait_until_acknowledged
from pulsar_ext.testing import Profile

__all__ = ["LINES"]

_RECEIVE_MILLIS: Final = 120_000
_CONFIRM_MILLIS: Final = 120_000
_MESSAGES: Final = 3
"""Number of messages of each run, one after the other."""
_CHUNKED_ABOVE: Final = 5_000_000
_CHUNK: Final = 50_000
"""Bytes that fit into a chunk of the small broker, whose largest message has 50 KiB. Its largest command has 60 KiB,
enough for three thousand acknowledgements: it drops a connection for a larger one."""
_SMALL: Final = Profile("small-chunks", "messages above 50 KiB are chunked", {"maxMessageSize": "51200"})


def _run_size(bench: Bench, watch: Watch) -> None:
    _send_and_receive(bench, watch, bench.size, is_chunked=bench.size > _CHUNKED_ABOVE)


def _run_chunks(bench: Bench, watch: Watch) -> None:
    """Send `size` times 50 kB; a chunk holds slightly more, so a thousand need slightly fewer."""
    _send_and_receive(bench, watch, bench.size * _CHUNK, is_chunked=True)


def _send_and_receive(bench: Bench, watch: Watch, size: int, *, is_chunked: bool) -> None:
    topic, payload = f"{bench.topic}-{uuid.uuid4().hex[:8]}", bytes(size)
    with bench.open() as client:
        consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
        producer = client.create_producer(
            topic, chunking_enabled=is_chunked, batching_enabled=False, max_pending_messages=2 * bench.size or 1
        )
        with watch:
            for _ in range(_MESSAGES):
                producer.send(payload)
                message = consumer.receive(_RECEIVE_MILLIS)
                consumer.acknowledge(message)
                assert len(message.data()) == size
            if bench.is_ours:
                consumer.flush_acks(confirm=True, timeout_ms=_CONFIRM_MILLIS)
            else:
                wait_until_acknowledged(bench, topic, "s", message)


LINES: Final = (
    Line(
        "message size: three sent, received and acknowledged, chunked above 5 MB",
        "bytes",
        (0, 1_000, 10_000, 100_000, 1_000_000, 5_000_000, 20_000_000, 50_000_000, 100_000_000),
        (0, 1_000, 1_000_000, 10_000_000),
        _run_size,
    ),
    Line(
        "chunks of a message: three sent, received and acknowledged",
        "chunks",
        (1, 10, 100, 300, 1_000),
        (1, 10, 50),
        _run_chunks,
        profile=_SMALL,
    ),
)
