"""A broker that cannot store for a moment, again and again: nothing lost, nothing stored twice.

    python tests/faults/rejected_writes.py [--client pulsar_ext] [--topics N] [--seconds N] [--kill SECONDS]

A standalone broker of ledgers of 300 entries. As many unbatched, deduplicating producers as there are topics send
numbers all the time, up to a thousand of them unanswered, on one connection (`rejected_writer.py`). Meanwhile the
namespace asks by turns for two bookies, of which there is one, and for one: whenever a ledger is full, no other can be
made for a while, and the broker refuses what it is sent. With `--kill`, the process that sends is killed every so many
seconds on average, and another goes on behind what its client says is persisted. In the end the official client reads
every topic, and the numbers are compared.

Such a broker goes on feeding a producer that it has closed, so that a later message is stored where earlier ones were
refused; when those are sent again, it calls them duplicates. Exits with 1 if `pulsar_ext` lost or repeated anything.
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

_NAMESPACE = "public/refused"
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
    """Have every ledger made from now on stored by so many bookies."""
    admin.set_persistence(_NAMESPACE, Persistence(bookies, bookies, bookies, 0))


def run(client_name: str, topics: Sequence[str], seconds: float, kill: float | None) -> dict[str, Any]:
    """Have one client's producers send to topics while writes are refused; count what came of it."""
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
    lost, told, twice, late = 0, Counter[str](), 0, 0
    for topic, (sent, answers) in said.items():
        stored = _numbers(client, topic)
        missing = set(range(sent)) - set(stored)
        lost += len(missing)
        twice += len(stored) - len(set(stored))
        late += sum(one < highest for one, highest in zip(stored, _running_highest(stored), strict=True))
        told.update(answers.get(str(one), "Ok, or nothing that is known") for one in missing)
    client.close()
    sent = sum(sent for sent, _ in said.values())
    return {"sent": sent, "lost": lost, "stored twice": twice, "out of order": late, "the lost were told": dict(told)}


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
    """Run, print a line of JSON for each client, and say whether `pulsar_ext` kept its word."""
    parser = SeededParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--client", nargs="+", choices=("pulsar", "pulsar_ext"), default=("pulsar", "pulsar_ext"))
    parser.add_argument("--topics", type=int, default=24)
    parser.add_argument("--seconds", type=float, default=180)
    parser.add_argument("--kill", type=float, help="kill the process that sends every so many seconds on average")
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
