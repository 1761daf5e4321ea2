"""A broker that cannot store for a moment, again and again: nothing lost, nothing stored twice.

    python tests/faults/refused_writes.py [--client pulsar_ext] [--topics N] [--seconds N]

A standalone broker of ledgers of 300 entries. As many unbatched, deduplicating producers as there are topics send
numbers all the time, up to a thousand of them unanswered, on one connection. Meanwhile the namespace asks by turns for
two bookies, of which there is one, and for one: whenever a ledger is full, no other can be made for a while, and the
broker refuses what it is sent. In the end the official client reads every topic, and the numbers are compared.

Such a broker goes on feeding a producer that it has closed, so that a later message is stored where earlier ones were
refused; when those are sent again, it calls them duplicates. Exits with 1 if `pulsar_ext` lost or repeated anything.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import pulsar

import pulsar_ext
from pulsar_ext.admin import Persistence, PulsarAdmin, Retention
from pulsar_ext.testing import Profile, PulsarProcess

if TYPE_CHECKING:
    from collections.abc import Sequence

_NAMESPACE = "public/refused"
_PROFILE = Profile(
    "refused-writes",
    "small ledgers, deduplication",
    {
        "brokerDeduplicationEnabled": "true",
        "managedLedgerMaxEntriesPerLedger": "300",
        "managedLedgerMinLedgerRolloverTimeMinutes": "0",
    },
)
_QUIET = pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull)


@dataclass
class Stream:
    """What one producer has sent, and what it was told."""

    producer: Any
    sent: int = 0
    told: dict[int, str] = field(default_factory=dict)

    def send(self, end: threading.Event) -> None:
        """Send numbers until the end, then wait until all have an answer."""
        while not end.is_set():
            number = self.sent
            self.sent += 1
            self.producer.send_async(b"%d" % number, partial(self._hear, number), sequence_id=number)
            if number % 50 == 0:
                time.sleep(0.005)
        self.producer.flush()

    def _hear(self, number: int, result: Any, _: Any) -> None:
        self.told[number] = result.name


def want(admin: PulsarAdmin, bookies: int) -> None:
    """Have every ledger made from now on stored by so many bookies."""
    admin.set_persistence(_NAMESPACE, Persistence(bookies, bookies, bookies, 0))


def run(client_name: str, topics: Sequence[str], seconds: float) -> dict[str, Any]:
    """Have one client's producers send to topics while writes are refused; count what came of it."""
    with PulsarProcess(_PROFILE) as broker:
        admin = PulsarAdmin(broker.admin_url)
        admin.create_namespace(_NAMESPACE)
        admin.set_retention(_NAMESPACE, Retention(-1, -1))
        client: Any = (
            pulsar_ext.Client(broker.service_url, admin=broker.admin_url, logger=_QUIET)
            if client_name == "pulsar_ext"
            else pulsar.Client(broker.service_url, logger=_QUIET)
        )
        options = {"deduplication": True} if client_name == "pulsar_ext" else {"initial_sequence_id": -1}
        streams = {
            topic: Stream(
                client.create_producer(
                    topic,
                    producer_name=topic.rpartition("/")[2],
                    block_if_queue_full=True,
                    max_pending_messages=1_000,
                    send_timeout_millis=0,
                    **options,
                )
            )
            for topic in topics
        }
        end, turns = threading.Event(), 0
        threads = [threading.Thread(target=stream.send, args=(end,)) for stream in streams.values()]
        for thread in threads:
            thread.start()
        over = time.monotonic() + seconds
        while time.monotonic() < over:
            for bookies in (2, 1):
                want(admin, bookies)
                time.sleep(0.2 + random.random() * 0.6)
            turns += 1
        end.set()
        for thread in threads:
            thread.join()
        client.close()
        admin.close()
        return {"client": client_name, "turns": turns, **_counted(broker.service_url, streams)}


def _counted(service_url: str, streams: dict[str, Stream]) -> dict[str, Any]:
    client = pulsar.Client(service_url, logger=_QUIET)
    lost, told, twice, late = 0, Counter[str](), 0, 0
    for topic, stream in streams.items():
        stored = _numbers(client, topic)
        missing = set(range(stream.sent)) - set(stored)
        lost += len(missing)
        twice += len(stored) - len(set(stored))
        late += sum(one < highest for one, highest in zip(stored, _running_highest(stored), strict=True))
        told.update(stream.told.get(one, "nothing") for one in missing)
    client.close()
    sent = sum(stream.sent for stream in streams.values())
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
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--client", nargs="+", choices=("pulsar", "pulsar_ext"), default=("pulsar", "pulsar_ext"))
    parser.add_argument("--topics", type=int, default=24)
    parser.add_argument("--seconds", type=float, default=180)
    arguments = parser.parse_args()
    topics = [f"persistent://{_NAMESPACE}/t{number}" for number in range(arguments.topics)]
    clean = True
    for client_name in arguments.client:
        found = run(client_name, topics, arguments.seconds)
        print(json.dumps(found), flush=True)
        clean = clean and (client_name == "pulsar" or not (found["lost"] or found["stored twice"]))
    return 0 if clean else 1


if __name__ == "__main__":
    sys.exit(main())
