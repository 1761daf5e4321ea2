"""Effectively-once producers under faults: nothing is lost, stored twice, or out of order.

    python tests/faults/producer.py [--cycles N] [--minutes M] [--only kill-producer …] [--clients pulsar] [--json]

Ten writers, five kinds for each client, send numbers under fixed producer names during one fault of the broker in each
cycle: `kill-producer` (SIGKILL, and the next process resumes), `kill-broker` (SIGKILL and restart), `unload` (every
topic), `cut` (every connection reset by a proxy), `timeout` (the proxy stalls for longer than `send_timeout_millis`).
A writer reopens its producer after a failure. It resumes after the id that its client reports as last. Finally
every topic is read from the beginning with the official client, and the numbers are compared.

Starts a broker of its own, which needs Java. Exits with 1 if `pulsar_ext` lost, repeated or disordered messages.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

from producer_topics import CLIENTS, PARTITIONS, Outcome, Writer, prepare, table
from producer_writer import KINDS
from seeded import SeededParser

from pulsar_ext import PulsarAdmin
from pulsar_ext.admin import Retention
from pulsar_ext.errors import PulsarExtError
from pulsar_ext.testing import FaultProxy, PulsarProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

__all__ = ["FAULTS", "Outcome", "run"]

FAULTS: Final = ("kill-producer", "kill-broker", "unload", "cut", "timeout")
_TIMEOUT_MILLIS: Final = 1_500
_PAUSES: Final = {
    "kill-producer": (0.1, 0.5),
    "kill-broker": (1.5, 2.5),
    "unload": (0.3, 0.9),
    "cut": (0.3, 0.9),
    "timeout": (0.5, 1.2),
}
"""Minimum and maximum seconds before each fault."""


def run(
    cycles: int,
    faults: Sequence[str] = FAULTS,
    clients: Sequence[str] = CLIENTS,
    kinds: Sequence[str] = tuple(KINDS),
    report: Callable[[str], None] = lambda _: None,
    minutes: float = 1e6,
) -> Iterator[Outcome]:
    """Run `cycles` cycles of each fault, at most for `minutes`, and yield the outcome of each topic."""
    prepare()
    with (
        PulsarProcess("small-chunks", settings={"brokerDeduplicationEnabled": "true"}) as broker,
        FaultProxy.to(broker.service_url) as proxy,
        PulsarAdmin(broker.admin_url) as admin,
    ):
        # Without a subscription, the broker deletes what it has deduplicated as soon as a ledger is full.
        admin.set_retention("public/default", Retention(-1, -1))
        for fault in faults:
            began = time.monotonic()
            with tempfile.TemporaryDirectory() as directory:
                writers = [
                    Writer(client, kind, fault, proxy.service_url, broker.admin_url, Path(directory), **_options(fault))
                    for client in clients
                    for kind in kinds
                ]
                for writer in writers:
                    if KINDS[writer.task.kind].partitioned:
                        admin.create_partitioned_topic(writer.task.topic, PARTITIONS)
                    writer.start()
                done = 0
                while done < cycles and time.monotonic() - began < minutes * 60:
                    time.sleep(random.uniform(*_PAUSES[fault]))  # not a secret
                    _inject(fault, broker, proxy, admin, writers)
                    done += 1
                    if done % 10 == 0:
                        report(f"{fault}: {done} of {cycles} cycles, {time.monotonic() - began:.0f} s")
                time.sleep(1)
                for writer in writers:
                    writer.ask_to_stop()
                for writer in writers:
                    yield writer.outcome(done, broker.service_url, fault)


def _options(fault: str) -> dict[str, int]:
    return {"send_timeout_millis": _TIMEOUT_MILLIS} if fault == "timeout" else {}


def _inject(
    fault: str, broker: PulsarProcess, proxy: FaultProxy, admin: PulsarAdmin, writers: Iterable[Writer]
) -> None:
    if fault == "kill-producer":
        _kill_at_work(writers)
    elif fault == "kill-broker":
        broker.kill()
        broker.restart()
    elif fault == "unload":
        for writer in writers:
            for topic in writer.topics():
                try:
                    admin.unload(topic)
                except PulsarExtError:  # it is not loaded now
                    continue
    elif fault == "cut":
        proxy.cut()
    else:
        proxy.pause()
        time.sleep(_TIMEOUT_MILLIS / 1000 * 1.4)
        proxy.resume()


def _kill_at_work(writers: Iterable[Writer]) -> None:
    for writer in writers:
        writer.wait_until_at_work()
    time.sleep(random.uniform(0, 0.3))
    for writer in writers:
        writer.kill()
    for writer in writers:
        writer.start()


def main() -> int:
    """Run and print; return 1 if `pulsar_ext` broke a guarantee."""
    parser = SeededParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cycles", type=int, default=100, help="of each fault; 100 by default")
    parser.add_argument("--only", nargs="+", choices=FAULTS, default=FAULTS, metavar="FAULT", help=", ".join(FAULTS))
    parser.add_argument("--clients", nargs="+", choices=CLIENTS, default=CLIENTS)
    parser.add_argument("--kinds", nargs="+", choices=tuple(KINDS), default=tuple(KINDS))
    parser.add_argument("--minutes", type=float, default=1e6, help="the longest time for each fault's cycles")
    parser.add_argument("--json", action="store_true", help="print the outcomes as JSON")
    arguments = parser.parse_args()
    outcomes = []
    for outcome in run(
        arguments.cycles,
        arguments.only,
        arguments.clients,
        arguments.kinds,
        lambda line: print(line, file=sys.stderr, flush=True),
        arguments.minutes,
    ):
        outcomes.append(outcome)
        print(outcome, file=sys.stderr, flush=True)
    print(json.dumps([asdict(one) for one in outcomes], indent=1) if arguments.json else table(outcomes))
    return 0 if all(one.clean for one in outcomes if one.client == "pulsar_ext") else 1


if __name__ == "__main__":
    sys.exit(main())
