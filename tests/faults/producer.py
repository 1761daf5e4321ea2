"""Effectively-once producers under faults: nothing lost, nothing stored twice, everything in order.

    python tests/faults/producer.py [--cycles N] [--minutes M] [--only kill-producer …] [--clients pulsar] [--json]

Ten writers, five kinds for each client, send numbers under fixed producer names while one broker suffers a fault each
cycle: `kill-producer` (SIGKILL, and the next process resumes), `kill-broker` (SIGKILL and restart), `unload` (every
topic), `cut` (every connection reset by a proxy), `timeout` (the proxy stalls for longer than `send_timeout_millis`).
A writer that hears of a failure opens its producer again. It resumes behind the id that its client reports as last.
In the end every topic is read from the beginning with the official client, and the numbers are compared.

Starts a broker of its own, which needs Java. Exits with 1 if `pulsar_ext` lost, repeated or disordered anything.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pulsar as official
from producer_writer import KINDS, Task, write

from pulsar_ext import PulsarAdmin
from pulsar_ext.admin import Retention
from pulsar_ext.errors import PulsarExtError
from pulsar_ext.testing import FaultProxy, PulsarProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

__all__ = ["FAULTS", "Outcome", "run"]

FAULTS: Final = ("kill-producer", "kill-broker", "unload", "cut", "timeout")
CLIENTS: Final = ("pulsar_ext", "pulsar")
_TIMEOUT_MILLIS: Final = 1_500
_PAUSES: Final = {
    "kill-producer": (0.1, 0.5),
    "kill-broker": (1.5, 2.5),
    "unload": (0.3, 0.9),
    "cut": (0.3, 0.9),
    "timeout": (0.5, 1.2),
}
"""Seconds before each fault, from and to."""
_PARTITIONS: Final = 4
_FINISH_SECONDS: Final = 90.0
_WORK_SECONDS: Final = 20.0
_READ_MILLIS: Final = 15_000
_READS: Final = 4
_spawn = multiprocessing.get_context("forkserver")


@dataclass(frozen=True)
class Outcome:
    """What one writer's topic holds after the cycles of one fault."""

    client: str
    fault: str
    kind: str
    cycles: int
    sent: int
    lost: int
    duplicated: int
    disordered: int
    note: str = ""

    @property
    def clean(self) -> bool:
        """Whether every number is there once and in order."""
        return not (self.lost or self.duplicated or self.disordered or self.note)


def run(
    cycles: int,
    faults: Sequence[str] = FAULTS,
    clients: Sequence[str] = CLIENTS,
    kinds: Sequence[str] = tuple(KINDS),
    report: Callable[[str], None] = lambda _: None,
    minutes: float = 1e6,
) -> Iterator[Outcome]:
    """Run so many cycles of each fault, but for no longer than `minutes`, and give what each topic holds."""
    sys.path.insert(0, str(Path(__file__).parent))
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)  # of the server that the writers are forked from
    _spawn.set_forkserver_preload(["pulsar_ext", "producer_writer"])
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
                    _Writer(client, kind, fault, proxy.service_url, broker.admin_url, Path(directory))
                    for client in clients
                    for kind in kinds
                ]
                for writer in writers:
                    if KINDS[writer.task.kind].partitioned:
                        admin.create_partitioned_topic(writer.task.topic, _PARTITIONS)
                    writer.start()
                done = 0
                while done < cycles and time.monotonic() - began < minutes * 60:
                    time.sleep(random.uniform(*_PAUSES[fault]))  # no secret
                    _inject(fault, broker, proxy, admin, writers)
                    done += 1
                    if done % 10 == 0:
                        report(f"{fault}: {done} of {cycles} cycles, {time.monotonic() - began:.0f} s")
                time.sleep(1)
                for writer in writers:
                    writer.ask_to_stop()
                for writer in writers:
                    yield writer.outcome(done, broker.service_url, fault)


def _inject(
    fault: str, broker: PulsarProcess, proxy: FaultProxy, admin: PulsarAdmin, writers: Iterable[_Writer]
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
                except PulsarExtError:  # it is not loaded just now
                    continue
    elif fault == "cut":
        proxy.cut()
    else:
        proxy.pause()
        time.sleep(_TIMEOUT_MILLIS / 1000 * 1.4)
        proxy.resume()


def _kill_at_work(writers: Iterable[_Writer]) -> None:
    for writer in writers:
        writer.wait_until_at_work()
    time.sleep(random.uniform(0, 0.3))
    for writer in writers:
        writer.kill()
    for writer in writers:
        writer.start()


class _Writer:
    """One process that writes one topic, again and again."""

    def __init__(self, client: str, kind: str, fault: str, url: str, admin_url: str, directory: Path) -> None:
        name = f"{client}-{kind}-{fault}".replace("_", "-")
        self.task = Task(
            client=client,
            kind=kind,
            topic=f"persistent://public/default/{name}",
            name=name,
            url=url,
            admin_url=admin_url,
            send_timeout_millis=_TIMEOUT_MILLIS if fault == "timeout" else 30_000,
            stop=str(directory / f"{name}.stop"),
            result=str(directory / f"{name}.json"),
            working=str(directory / f"{name}.working"),
        )
        self._process: Any = None

    def topics(self) -> list[str]:
        if not KINDS[self.task.kind].partitioned:
            return [self.task.topic]
        return [f"{self.task.topic}-partition-{index}" for index in range(_PARTITIONS)]

    def wait_until_at_work(self) -> None:
        """Wait until the process has sent something, so that its end comes in the midst of it."""
        began = time.monotonic()
        while not Path(self.task.working).exists() and time.monotonic() - began < _WORK_SECONDS:
            time.sleep(0.01)

    def start(self) -> None:
        Path(self.task.working).unlink(missing_ok=True)
        self._process = _spawn.Process(target=write, args=(self.task,), daemon=True)
        self._process.start()

    def kill(self) -> None:
        self._process.kill()
        self._process.join()

    def ask_to_stop(self) -> None:
        Path(self.task.stop).touch()

    def outcome(self, cycles: int, url: str, fault: str) -> Outcome:
        """Wait for the writer's end, and compare what it sent with what its topic holds."""
        self._process.join(_FINISH_SECONDS)
        note = ""
        if self._process.is_alive():
            self.kill()
            note = "hung at the end"
        elif self._process.exitcode:
            note = f"ended with {self._process.exitcode}"
        result = Path(self.task.result)
        sent = json.loads(result.read_text())["sent"] if result.exists() else 0
        try:
            lists = _read(url, self.topics(), chunked=KINDS[self.task.kind].bytes > 0)
        except _Unreadable as error:  # nothing can be said about what it holds
            return Outcome(self.task.client, fault, self.task.kind, cycles, sent, 0, 0, 0, f"not counted: {error}")
        found = Counter(number for numbers in lists for number, _ in numbers)
        sent = max([sent, *(number + 1 for number in found)])
        return Outcome(
            client=self.task.client,
            fault=fault,
            kind=self.task.kind,
            cycles=cycles,
            sent=sent,
            lost=sum(number not in found for number in range(sent)),
            duplicated=sum(count - 1 for count in found.values()),
            disordered=sum(_disorder(numbers, by_key=KINDS[self.task.kind].keys > 0) for numbers in lists),
            note=note,
        )


class _Unreadable(Exception):  # noqa: N818  # never leaves this program
    """A topic says that it has more, and gives nothing."""


def _read(url: str, topics: Iterable[str], *, chunked: bool) -> list[list[tuple[int, str]]]:
    """Read topics from the beginning: each message's number and key.

    Raises:
        _Unreadable: one of them cannot be read to its end, and that is not for half a message in chunks.
    """
    client = official.Client(url, logger=official.ConsoleLogger(official.LoggerLevel.Error))
    try:
        return [_read_one(client, topic, chunked=chunked) for topic in topics]
    finally:
        client.close()


def _read_one(client: official.Client, topic: str, *, chunked: bool) -> list[tuple[int, str]]:
    for attempt in range(_READS):
        numbers: list[tuple[int, str]] = []
        try:
            reader = client.create_reader(topic, official.MessageId.earliest)
        except official.Timeout:  # the broker is still loading the topic after its last fault
            continue
        try:
            while reader.has_message_available():
                message = reader.read_next(_READ_MILLIS)
                numbers.append((int(message.data().split(b" ", 1)[0]), message.partition_key()))
        except official.Timeout:
            if not chunked and attempt == _READS - 1:
                raise _Unreadable(f"{topic} gives {len(numbers)} messages, and then nothing") from None
            if not chunked:
                continue
        finally:
            reader.close()
        return numbers
    raise _Unreadable(f"{topic} could not be opened")


def _disorder(numbers: Iterable[tuple[int, str]], *, by_key: bool) -> int:
    """Count the numbers that are first seen behind a higher one; of the same key where keys count."""
    highest: dict[str, int] = {}
    seen: set[int] = set()
    count = 0
    for number, key in numbers:
        last = highest.get(key if by_key else "", -1)
        if number not in seen and number < last:
            count += 1
        seen.add(number)
        highest[key if by_key else ""] = max(last, number)
    return count


def _table(outcomes: Iterable[Outcome]) -> str:
    lines = [
        "| client | fault | kind | cycles | sent | lost | duplicated | out of order | |",
        "|---|---|---|--:|--:|--:|--:|--:|---|",
    ]
    lines += [
        f"| {o.client} | {o.fault} | {o.kind} | {o.cycles} | {o.sent:,} | {o.lost:,} | {o.duplicated:,} "
        f"| {o.disordered:,} | {o.note} |"
        for o in outcomes
    ]
    return "\n".join(lines)


def main() -> int:
    """Run, print, and say by the exit status whether `pulsar_ext` kept its word."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cycles", type=int, default=100, help="of each fault; 100 by default")
    parser.add_argument("--only", nargs="+", choices=FAULTS, default=FAULTS, metavar="FAULT", help=", ".join(FAULTS))
    parser.add_argument("--clients", nargs="+", choices=CLIENTS, default=CLIENTS)
    parser.add_argument("--kinds", nargs="+", choices=tuple(KINDS), default=tuple(KINDS))
    parser.add_argument("--minutes", type=float, default=1e6, help="end each fault's cycles after so long")
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
    print(json.dumps([asdict(one) for one in outcomes], indent=1) if arguments.json else _table(outcomes))
    return 0 if all(one.clean for one in outcomes if one.client == "pulsar_ext") else 1


if __name__ == "__main__":
    sys.exit(main())
