"""Common parts of the programs for faults of producers: a writer in a process, its topic read back, the outcome."""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pulsar as official
from producer_writer import KINDS, Task, write

import pulsar_ext

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["CLIENTS", "PARTITIONS", "Outcome", "Writer", "prepare", "table"]

CLIENTS: Final = ("pulsar_ext", "pulsar")
PARTITIONS: Final = 4
_FINISH_SECONDS: Final = 90.0
_WORK_SECONDS: Final = 20.0
_READ_MILLIS: Final = 15_000
_READS: Final = 4
_MOST_REPORTED: Final = 10
_spawn = multiprocessing.get_context("forkserver")


def prepare() -> None:
    """Let the fork server find and load what the writers need."""
    sys.path.insert(0, str(Path(__file__).parent))
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    _spawn.set_forkserver_preload(["pulsar_ext", "producer_writer"])


@dataclass(frozen=True)
class Outcome:
    """Contents of one writer's topic after the cycles of one fault."""

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
        """True if every number is stored once and in order."""
        return not (self.lost or self.duplicated or self.disordered or self.note)


class _Read(NamedTuple):
    """A message of a topic."""

    number: int
    key: str
    position: str


class Writer:
    """A process that writes one topic, and is restarted."""

    def __init__(
        self,
        client: str,
        kind: str,
        fault: str,
        url: str,
        admin_url: str,
        directory: Path,
        *,
        send_timeout_millis: int = 30_000,
        namespace: str = "public/default",
        share: float = 1.0,
    ) -> None:
        name = f"{client}-{kind}-{fault}".replace("_", "-").replace(" ", "-")
        self.task = Task(
            client=client,
            kind=kind,
            topic=f"persistent://{namespace}/{name}",
            name=name,
            url=url,
            admin_url=admin_url,
            send_timeout_millis=send_timeout_millis,
            share=share,
            stop=str(directory / f"{name}.stop"),
            result=str(directory / f"{name}.json"),
            working=str(directory / f"{name}.working"),
            begun=str(directory / f"{name}.begun"),
        )
        self._process: Any = None

    def topics(self) -> list[str]:
        if not KINDS[self.task.kind].partitioned:
            return [self.task.topic]
        return [f"{self.task.topic}-partition-{index}" for index in range(PARTITIONS)]

    def wait_until_at_work(self) -> None:
        """Wait until the process has sent something, so that it is killed while it sends."""
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
        except _Unreadable as error:  # its contents are unknown
            return Outcome(self.task.client, fault, self.task.kind, cycles, sent, 0, 0, 0, f"not counted: {error}")
        found = Counter(number for numbers in lists for number, *_ in numbers)
        sent = max([sent, *(number + 1 for number in found)])
        missing = [number for number in range(sent) if number not in found]
        if missing and not note:
            note = f"the first {missing[0]:,}, the last {missing[-1]:,}{self._evidence(lists, missing)}"
        return Outcome(
            client=self.task.client,
            fault=fault,
            kind=self.task.kind,
            cycles=cycles,
            sent=sent,
            lost=len(missing),
            duplicated=sum(count - 1 for count in found.values()),
            disordered=sum(_disorder(numbers, by_key=KINDS[self.task.kind].keys > 0) for numbers in lists),
            note=note,
        )

    def _evidence(self, lists: list[list[_Read]], missing: list[int]) -> str:
        """Describe the entries around the missing ones, the number of entries of each ledger, and the restarts."""
        around = {missing[0] - 1, missing[-1] + 1}
        found = "; ".join(
            f"{one.number:,} is at {one.position}" for numbers in lists for one in numbers if one.number in around
        )
        with pulsar_ext.PulsarAdmin(self.task.admin_url) as admin:
            ledgers = "; ".join(
                " ".join(f"{ledger}:{entries}" for ledger, entries in admin.internal_stats(topic).ledger_sizes())
                for topic in self.topics()
            )
        begun = " ".join(Path(self.task.begun).read_text(encoding="utf-8").split())
        result = Path(self.task.result)
        answers = json.loads(result.read_text())["answers"] if result.exists() else {}
        reported = Counter(answers.get(str(number), "nothing") for number in missing)
        said = "; ".join(f"{answer} ({count})" for answer, count in list(reported.items())[:_MOST_REPORTED])
        return f". {found}. Reported for the missing: {said}. Ledgers {ledgers}. Began at {begun}"


class _Unreadable(Exception):  # noqa: N818  # never leaves this program
    """A topic reports more messages, and delivers none."""


def _read(url: str, topics: Iterable[str], *, chunked: bool) -> list[list[_Read]]:
    """Read topics from the beginning.

    Raises:
        _Unreadable: a topic cannot be read to its end, and the cause is not an incomplete chunked message.
    """
    client = official.Client(url, logger=official.ConsoleLogger(official.LoggerLevel.Error))
    try:
        return [_read_one(client, topic, chunked=chunked) for topic in topics]
    finally:
        client.close()


def _read_one(client: official.Client, topic: str, *, chunked: bool) -> list[_Read]:
    for attempt in range(_READS):
        numbers: list[_Read] = []
        try:
            reader = client.create_reader(topic, official.MessageId.earliest)
        except official.Timeout:  # the broker is still loading the topic after its last fault
            continue
        try:
            while reader.has_message_available():
                message = reader.read_next(_READ_MILLIS)
                number, place = int(message.data().split(b" ", 1)[0]), message.message_id()
                numbers.append(_Read(number, message.partition_key(), f"{place.ledger_id()}:{place.entry_id()}"))
        except official.Timeout:
            if not chunked and attempt == _READS - 1:
                raise _Unreadable(f"{topic} delivers {len(numbers)} messages, and then nothing") from None
            if not chunked:
                continue
        finally:
            reader.close()
        return numbers
    raise _Unreadable(f"{topic} could not be opened")


def _disorder(numbers: Iterable[_Read], *, by_key: bool) -> int:
    """Return the number of messages first seen after a higher one; of the same key if keys count."""
    highest: dict[str, int] = {}
    seen: set[int] = set()
    count = 0
    for number, key, _ in numbers:
        last = highest.get(key if by_key else "", -1)
        if number not in seen and number < last:
            count += 1
        seen.add(number)
        highest[key if by_key else ""] = max(last, number)
    return count


def table(outcomes: Iterable[Outcome]) -> str:
    """Return a table in Markdown: a row sums up the kinds of producers, and has what each sent and did wrong."""
    rows: dict[tuple[str, str], list[Outcome]] = {}
    for one in outcomes:
        rows.setdefault((one.client, one.fault), []).append(one)
    kinds = list(dict.fromkeys(one.kind for ones in rows.values() for one in ones))
    counts = {name: name for name in ("cycles", "sent", "lost", "duplicated")} | {"out of order": "disordered"}
    lines = [
        f"| client | fault | {' | '.join(counts)} | sent: {' | '.join(kinds)} | |",
        "|---|---|" + "--:|" * (len(counts) + len(kinds)) + "---|",
    ]
    for place, ones in rows.items():
        sums = (sum(getattr(one, name) for one in ones) for name in counts.values())
        sent = (sum(one.sent for one in ones if one.kind == kind) for kind in kinds)
        numbers = (f"{count:,}" for count in (*sums, *sent))
        lines.append(f"| {' | '.join((*place, *numbers, '; '.join(filter(None, map(_defects, ones)))))} |")
    return "\n".join(lines)


def _defects(one: Outcome) -> str:
    """Return the counts and the note of a kind of producers that is not clean."""
    counts = {"lost": one.lost, "duplicated": one.duplicated, "out of order": one.disordered}
    texts = [f"{count:,} {what}" for what, count in counts.items() if count] + [one.note] * bool(one.note)
    return f"{one.kind}: {', '.join(texts)}" if texts else ""
