"""Cost of OpenTelemetry: each path with an instrumented client compared with an uninstrumented one, in turn.

    python -m benchmarks.otel [--rounds 9] [--messages 5000] [--save] [--url URL --admin-url URL]

Starts its own broker. The ratio is the time with instrumentation over the time without, median over the pairs; `--save`
writes RESULTS-otel.md beside this program. Needs the extras `otel` and `bench`, and opentelemetry-sdk.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import gc
import statistics
import sys
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pulsar
from opentelemetry import propagate
from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON
from opentelemetry.trace import NoOpTracerProvider, SpanKind, set_span_in_context

import pulsar_ext
import pulsar_ext.otel
from benchmarks.brokers import broker_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from opentelemetry.sdk.trace import ReadableSpan

_QUIET = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
_PAYLOAD: Final = b"x" * 100
_SYNC_SHARE: Final = 20
"""Divisor of the number of messages for paths in which each send waits for the broker."""


class Spent(NamedTuple):
    """Seconds of a run, by the clock and by the processor."""

    wall: float
    processor: float


class _NullExporter(SpanExporter):
    """Exporter that drops spans, because the cost of an exporter is not measured."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        del spans
        return SpanExportResult.SUCCESS


def _send(client: Any, topic: str, count: int) -> Spent:
    producer = client.create_producer(f"{topic}-sent", batching_enabled=False)
    few = range(count // _SYNC_SHARE)
    with producer, _timed(len(few)) as spent:
        for _ in few:
            producer.send(_PAYLOAD)
    return spent()


def _send_async(client: Any, topic: str, count: int) -> Spent:
    settings = {"batching_enabled": True, "batching_max_messages": 1_000, "max_pending_messages": 2 * count}
    producer = client.create_producer(f"{topic}-sent", **settings)
    with producer, _timed(count) as spent:
        for _ in range(count):
            producer.send_async(_PAYLOAD, _ignore)
        producer.flush()
    return spent()


def _ignore(*_: object) -> None:
    """Ignore the outcome."""


def _receive(client: Any, topic: str, count: int) -> Spent:
    """Receive and acknowledge: the span of a message ends with its acknowledgement."""
    consumer = client.subscribe(topic, uuid.uuid4().hex, initial_position=pulsar.InitialPosition.Earliest)
    with _timed(count) as spent:
        for _ in range(count):
            consumer.acknowledge(consumer.receive(30_000))
    consumer.unsubscribe()
    return spent()


def _read(client: Any, topic: str, count: int) -> Spent:
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    with reader, _timed(count) as spent:
        for _ in range(count):
            reader.read_next(30_000)
    return spent()


@contextlib.contextmanager
def _timed(count: int) -> Iterator[Callable[[], Spent]]:
    """Time a block; the yielded function returns its seconds per message."""
    found = []
    gc.collect()
    wall, processor = time.perf_counter(), time.process_time()
    yield lambda: found[0]
    found.append(Spent((time.perf_counter() - wall) / count, (time.process_time() - processor) / count))


_PATHS: Final = {
    "send()": _send,
    "send_async(), batched, and flush()": _send_async,
    "receive(), acknowledge()": _receive,
    "read_next()": _read,
}
_KINDS: Final = {
    "the API alone": lambda: (NoOpTracerProvider(), NoOpMeterProvider()),
    "the SDK, nothing sampled": lambda: (TracerProvider(sampler=ALWAYS_OFF), NoOpMeterProvider()),
    "the SDK, all sampled": lambda: (_sampling(), NoOpMeterProvider()),
    "the SDK, all sampled, metrics": lambda: (_sampling(), MeterProvider([InMemoryMetricReader()])),
}


def _sampling() -> TracerProvider:
    provider = TracerProvider(sampler=ALWAYS_ON)
    provider.add_span_processor(BatchSpanProcessor(_NullExporter(), max_queue_size=100_000))
    return provider


def _otel_alone(providers: Any) -> float:
    """Return the microseconds of OpenTelemetry per message, without a client: a span, its context, metrics.

    This is the minimum of a hand-written loop: a span with four attributes is started, its context is injected into
    properties, and it is ended; one counter counts, and one histogram records the duration.
    """
    tracers, meters = providers()
    tracer, meter = tracers.get_tracer("benchmark"), meters.get_meter("benchmark")
    counter, durations = meter.create_counter("messages"), meter.create_histogram("seconds")
    attributes = dict.fromkeys("abcd", "persistent://public/default/a-topic")
    count = 5_000
    with _timed(count) as spent:
        for _ in range(count):
            span = tracer.start_span("send", kind=SpanKind.PRODUCER, attributes=attributes)
            propagate.inject({}, set_span_in_context(span))
            span.end()
            counter.add(1, attributes)
            durations.record(0.001, attributes)
    for provider in (tracers, meters):
        with contextlib.suppress(AttributeError):
            provider.shutdown()
    return 1e6 * spent().wall


def main() -> int:
    """Measure, print, and save if asked to."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.otel", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9, help="pairs of runs (9)")
    parser.add_argument("--messages", type=int, default=5_000, help="messages a run (5,000)")
    parser.add_argument("--save", action="store_true", help="write RESULTS-otel.md beside this program")
    parser.add_argument("--url", nargs=1, help="a running broker, instead of a new one")
    options = parser.parse_args()
    rows = [f"| path | {' | '.join(_KINDS)} |", "|---|" + "---:|" * len(_KINDS)]
    with broker_at(options.url) as (url, *_):
        topic = f"persistent://public/default/otel-{uuid.uuid4().hex[:8]}"
        _fill(url, topic, options.messages)
        for path, run in _PATHS.items():
            found = (_figures(_by_turns(url, topic, run, providers, options)) for providers in _KINDS.values())
            rows.append(f"| {path} | {' | '.join(found)} |")
            print(rows[-1], flush=True)
    alone = (statistics.median(_otel_alone(one) for _ in range(options.rounds)) for one in _KINDS.values())
    rows.append(f"| OpenTelemetry by itself | {' | '.join(f'{us:.1f} us' for us in alone)} |")
    print(rows[-1], flush=True)
    if options.save:
        Path(__file__).with_name("RESULTS-otel.md").write_text(_page(rows, options), encoding="utf-8")
    return 0


def _fill(url: str, topic: str, count: int) -> None:
    """Send messages that belong to a trace."""
    client = pulsar_ext.Client(url, logger=_QUIET)
    producer = client.create_producer(topic, batching_enabled=True, max_pending_messages=2 * count)
    for number in range(count):
        producer.send_async(_PAYLOAD, None, properties={"traceparent": f"00-{number + 1:032x}-{number + 1:016x}-01"})
    producer.flush()
    client.close()


def _by_turns(
    url: str, topic: str, run: Callable[[Any, str, int], Spent], providers: Any, options: argparse.Namespace
) -> list[tuple[Spent, Spent]]:
    plain, traced = (pulsar_ext.Client(url, logger=_QUIET) for _ in range(2))
    tracers, meters = providers()
    pulsar_ext.otel.instrument(traced, tracer_provider=tracers, meter_provider=meters)
    pairs = []
    for turn in range(options.rounds + 1):
        spent: dict[Any, Spent] = {}
        for client in (plain, traced) if turn % 2 else (traced, plain):
            spent[client] = run(client, topic, options.messages)
        if turn:  # the first pair warms up
            pairs.append((spent[plain], spent[traced]))
    for client in (plain, traced):
        client.close()
    for provider in (tracers, meters):
        with contextlib.suppress(AttributeError):  # the API's own providers have no shutdown()
            provider.shutdown()
    return pairs


def _figures(pairs: list[tuple[Spent, Spent]]) -> str:
    ratios = [on.wall / off.wall for off, on in pairs]
    low, middle, high = statistics.quantiles(ratios, n=4)
    processor = statistics.median(on.processor / off.processor for off, on in pairs)
    off, on = (1e6 * statistics.median(pair[side].wall for pair in pairs) for side in (0, 1))
    return f"{off:.1f} / {on:.1f} us; {middle:.2f} ({low:.2f} to {high:.2f}); {processor:.2f}"


def _page(rows: list[str], options: argparse.Namespace) -> str:
    today = f"{dt.datetime.now(dt.UTC):%Y-%m-%d}"
    intro = (
        "`python -m benchmarks.otel --save` repeats the measurement: an instrumented client compared with an",
        "uninstrumented one, in one process, in turn. A cell has the time per message without and with",
        "instrumentation; their ratio, the median over the pairs, with its quartiles; and the ratio by processor time.",
        "The last row is OpenTelemetry without a client: a span with four attributes is started, its context is",
        "injected, and it is ended; a counter counts and a histogram records.",
        "",
        f"{today}, messages of 100 bytes, {options.rounds} pairs of {options.messages:,} each; spans are dropped by",
        "the exporter, in batches.",
    )
    return "\n".join(["# Cost of OpenTelemetry", "", *intro, "", *rows, ""])


if __name__ == "__main__":
    sys.exit(main())
