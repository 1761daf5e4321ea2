"""The process that `soak.py` tests: all clients, one mixed load, and samples of the process's resources.

    python soak_worker.py SERVICE_URL ADMIN_URL SEED SECONDS

Prints lines of JSON objects: `sample` at an interval, `closed` and `result` at the end. Reads commands, one a line:
`reset` (a cursor, as an operator), `drain` (send no more), `end`.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import json
import signal
import sys
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pulsar as official
from soak_awaited import Awaited
from soak_churn import start_churn
from soak_levels import Sample
from soak_receiving import Taking, start_consumers, start_reader
from soak_rig import PLAIN, Rig
from soak_sending import Writing, start_writer

if TYPE_CHECKING:
    from collections.abc import Iterator

_BATCHED: Final = {"batching_enabled": True, "batching_max_messages": 20, "batching_max_publish_delay_ms": 20}
_CHUNKED: Final = {"chunking_enabled": True}
_GROUPED: Final = {"ack_group_time_ms": 200, "max_ack_group_size": 50}
_TYPE: Final = official.ConsumerType
_DEAD: Final = official.ConsumerDeadLetterPolicy(3, f"{PLAIN}nacked-dead")
_LOAD: Final[dict[str, tuple[Writing, tuple[Taking, ...]]]] = {
    "once-batched": (
        Writing(100, _BATCHED),
        (Taking("loop", _TYPE.Exclusive, by="for", options=_GROUPED),),
    ),
    "nacked": (
        Writing(40),
        (
            Taking(
                "nacked",
                _TYPE.Shared,
                consumers=2,
                options={"dead_letter_policy": _DEAD, "unacked_messages_timeout_ms": 10_000},
                nack=0.03,
                forget=0.01,
            ),
        ),
    ),
    "partitioned": (
        Writing(60, {**_BATCHED, "batching_type": official.BatchingType.KeyBased}, keys=200),
        (
            Taking("failover", _TYPE.Failover, by="receive_many", acknowledge_by="acknowledge_many", consumers=2),
            Taking("keys", _TYPE.KeyShared, by="batch_receive", acknowledge_by="acknowledge_many", consumers=2),
        ),
    ),
    "ordered": (
        Writing(60, _BATCHED, many=True),
        (
            Taking("cumulative", _TYPE.Failover, by="receive_many", acknowledge_by="acknowledge_cumulative"),
            Taking(
                "scopes", _TYPE.Shared, by="receive_many", acknowledge_by="ack_scope", consumers=2, options=_GROUPED
            ),
        ),
    ),
    "once-chunks": (
        Writing(1, _CHUNKED, bytes=250_000),
        (Taking("shared", _TYPE.Shared, nack=0.05, options={"receiver_queue_size": 5}),),
    ),
    "chunks": (
        Writing(1, _CHUNKED, bytes=250_000),
        (Taking("exclusive", _TYPE.Exclusive),),
    ),
    "sought": (
        Writing(30, _BATCHED),
        (Taking("sought", _TYPE.Exclusive, goes_back=True, options=_GROUPED),),
    ),
    "reset": (
        Writing(30),
        (Taking("reset", _TYPE.Exclusive, by="receive_many", acknowledge_by="acknowledge_many", is_reset=True),),
    ),
}
PARTITIONED: Final = f"{PLAIN}partitioned"
_DRAIN_SAMPLE_SECONDS: Final = 1.0
_END_SECONDS: Final = 30.0
_CLOSE_SECONDS: Final = 15.0


def _say(**line: Any) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def _resident_kib() -> int:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    return 0


def _entries(path: str) -> int:
    return sum(1 for _ in Path(path).iterdir())


def _pending(rig: Rig) -> Iterator[int]:
    for consumer in list(rig.consumers):
        with contextlib.suppress(official.PulsarException):
            yield consumer.pending_acks()


def _sample(rig: Rig, awaited: Awaited | None, began: float) -> Sample:
    """Count open resources, before a garbage collection and after it."""
    flows = list(rig.flows.values())
    uncollected = _entries("/proc/self/fd")
    gc.collect()
    return Sample(
        seconds=round(time.monotonic() - began, 1),
        rss_mib=round(_resident_kib() / 1024, 1),
        threads=_entries("/proc/self/task"),
        descriptors=_entries("/proc/self/fd"),
        uncollected=uncollected,
        python_threads=threading.active_count(),
        objects=len(gc.get_objects()),
        tasks=awaited.tasks() if awaited is not None else 0,
        pending_acks=sum(_pending(rig)),
        missing=sum(flow.missing() for flow in flows),
        oldest=round(max((flow.oldest() for flow in flows), default=0.0), 1),
        sent=sum(flow.sent for flow in flows),
    )


def _report_samples(rig: Rig, awaited: Awaited, began: float, seconds: float) -> None:
    while not rig.over.is_set():
        _say(sample=asdict(_sample(rig, awaited, began)), at=time.monotonic())
        rig.draining.wait(seconds)
        if rig.draining.is_set():
            rig.over.wait(_DRAIN_SAMPLE_SECONDS)


def _start(rig: Rig, client: Any) -> None:
    for name, (writing, takings) in _LOAD.items():
        flow = rig.flow(name, once=name.startswith("once"))
        for taking in takings:
            start_consumers(rig, client, flow, taking)
        start_writer(rig, client, flow, writing)
    start_reader(rig, client, rig.flow("ordered"))
    start_churn(rig)


def _obey(rig: Rig) -> None:
    for line in sys.stdin:
        command = line.strip()
        if command == "reset":
            rig.reset.set()
        elif command == "drain":
            rig.draining.set()
        elif command == "end":
            break
    rig.draining.set()
    rig.over.set()


def _close_all(rig: Rig, client: Any, awaited: Awaited) -> None:
    awaited.join(_END_SECONDS)
    for consumer in list(rig.consumers):  # ends the loops that wait for a message
        if isinstance(consumer, official.Consumer):
            with contextlib.suppress(official.PulsarException):
                consumer.close()
    rig.join(_END_SECONDS)
    client.close()


def _sample_until_closed(rig: Rig, began: float, least: Sample) -> Sample:
    """Sample until no more is open than before the first client, with a timeout."""
    deadline = time.monotonic() + _CLOSE_SECONDS
    while True:
        sample = _sample(rig, None, began)
        open_now = sample.threads > least.threads or sample.descriptors > least.descriptors
        if not open_now or time.monotonic() > deadline:
            return sample
        time.sleep(0.5)


def main() -> None:
    """Work until the command to end."""
    url, admin_url, seed, seconds = sys.argv[1:]
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    began = time.monotonic()
    rig = Rig(url, admin_url, int(seed))
    before = _sample(rig, None, began)
    client = rig.client()
    awaited = Awaited(rig)
    _start(rig, client)
    sampling = threading.Thread(target=_report_samples, args=(rig, awaited, began, float(seconds)), daemon=True)
    sampling.start()
    _obey(rig)
    _close_all(rig, client, awaited)
    sampling.join()
    del client, awaited
    _say(before=asdict(before), closed=asdict(_sample_until_closed(rig, began, before)))
    _say(result=list(_results(rig)), errors=rig.errors, did=rig.did, findings=rig.findings)


def _results(rig: Rig) -> Iterator[dict[str, Any]]:
    for flow in rig.flows.values():
        for taken in flow.taken.values():
            yield {
                "flow": flow.name,
                "once": flow.once,
                "subscription": taken.name,
                "sent": flow.sent,
                "confirmed": flow.confirmed,
                "failed": flow.failed,
                "without_outcome": len(flow.open),
                "outcomes_twice": flow.outcomes_twice,
                "lost": len(taken.pending),
                "lost_numbers": list(taken.pending)[:10],
                "deliveries": taken.deliveries,
                "again": taken.again,
                "written_twice": taken.written_twice,
                "longest": round(taken.longest, 1),
            }


if __name__ == "__main__":
    main()
