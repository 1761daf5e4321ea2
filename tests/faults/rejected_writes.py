"""A broker that repeatedly cannot store for a moment: nothing is lost, nothing stored twice.

    python tests/faults/rejected_writes.py [--client pulsar_ext] [--topics N] [--seconds N] [--kill SECONDS]

A standalone broker with ledgers of 300 entries. An unbatched, deduplicating producer for each topic sends numbers
continuously, up to a thousand of them unanswered, on one connection (`rejected_writer.py`). The namespace alternately
requires two bookies, of which there is one, and one: after a full ledger, no other can be created for a while, and the
broker rejects what it receives. With `--kill`, the sending process is killed at this average interval, and another one
resumes after the last persisted id that its client reports. Finally the official client reads every topic, and the
numbers are compared.

Such a broker still accepts messages of a producer that it has closed, so a later message is stored after earlier ones
were rejected; when those are resent, it calls them duplicates. Exits with 1 if `pulsar_ext` lost or repeated messages.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pulsar
from seeded import SeededParser

from pulsar_ext.admin import Persistence, PulsarAdmin, Retention
from pulsar_ext.testing import Profile, PulsarProcess

if TYPE_CHECKING:
    from collections.abc import Sequence

_NAMESPACE = "public/rejected"
_PROFILE = Profile(
    "rejected-writes",
    "small ledgers, deduplication",
    {
        "brokerDeduplicationEnabled": "true",
        "managedLedgerMaxEntriesPerLedger": "300",
        "managedLedgerMinLedgerRolloverTimeMinutes": "0",
    },
)
_QUIET = pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull)
_WRITER = Path(__file__).with_name("rejected_writer.py")


def want(admin: PulsarAdmin, bookies: int) -> None:
    """Store every new ledger on `bookies` bookies."""
    admin.set_persistence(_NAMESPACE, Persistence(bookies, bookies, bookies, 0))


def run(client_name: str, topics: Sequence[str], seconds: float, kill: float | None) -> dict[str, Any]:
    """Let one client's producers send to topics while writes are rejected; return the counts."""
    with PulsarProcess(_PROFILE) as broker, PulsarAdmin(broker.admin_url) as admin:
        admin.create_namespace(_NAMESPACE)
        admin.set_retention(_NAMESPACE, Retention(-1, -1))
        want(admin, 1)
        command = [sys.executable, str(_WRITER), client_name, broker.service_url, broker.admin_url, *topics]

        def writer() -> subprocess.Popen[str]:
            pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
            return subprocess.Popen(command, text=True, **pipes)

        process, turns, kills = writer(), 0, 0
        over = time.monotonic() + seconds
        while time.monotonic() < over:
            for bookies in (2, 1):
                want(admin, bookies)
                time.sleep(0.2 + random.random() * 0.6)
            turns += 1
            if kill and random.random() < 1.0 / kill:  # a turn takes a second
                process.kill()
                process.communicate()
                process, kills = writer(), kills + 1
        said, _ = process.communicate("")
        counted = _counted(broker.service_url, json.loads(said))
        return {"client": client_name, "turns": turns, "kills": kills, **counted}


def _counted(service_url: str, said: dict[str, tuple[int, dict[str, str]]]) -> dict[str, Any]:
    client = pulsar.Client(service_url, logger=_QUIET)
    lost, reported, twice, late = 0, Counter[str](), 0, 0
    for topic, (sent, answers) in said.items():
        stored = _numbers(client, topic)
        missing = set(range(sent)) - set(stored)
        lost += len(missing)
        twice += len(stored) - len(set(stored))
        late += sum(one < highest for one, highest in zip(stored, _running_highest(stored), strict=True))
        reported.update(answers.get(str(one), "Ok, or no answer known") for one in missing)
    client.close()
    sent = sum(sent for sent, _ in said.values())
    return {
        "sent": sent,
        "lost": lost,
        "stored twice": twice,
        "out of order": late,
        "answers of the lost": dict(reported),
    }


def _running_highest(numbers: Sequence[int]) -> list[int]:
    highest = [-1]
    for number in numbers:
        highest.append(max(highest[-1], number))
    return highest[:-1]


def _numbers(client: pulsar.Client, topic: str) -> list[int]:
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    found = []
    while reader.has_message_available():
        found.append(int(reader.read_next(30_000).data()))
    reader.close()
    return found


def main() -> int:
    """Run, and print a line of JSON for each client; return 1 if `pulsar_ext` broke a guarantee."""
    parser = SeededParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--client", nargs="+", choices=("pulsar", "pulsar_ext"), default=("pulsar", "pulsar_ext"))
    parser.add_argument("--topics", type=int, default=24)
    parser.add_argument("--seconds", type=float, default=180)
    parser.add_argument("--kill", type=float, help="average seconds between two kills of the sending process")
    arguments = parser.parse_args()
    topics = [f"persistent://{_NAMESPACE}/t{number}" for number in range(arguments.topics)]
    clean = True
    for client_name in arguments.client:
        found = run(client_name, topics, arguments.seconds, arguments.kill)
        print(json.dumps(found), flush=True)
        clean = clean and (client_name == "pulsar" or not (found["lost"] or found["stored twice"]))
    return 0 if clean else 1


if __name__ == "__main__":
    sys.exit(main())
