"""Consuming processes that are killed; as a program, one such process.

It receives and acknowledges k messages, flushes with confirmation, reports, and continues until it is killed or idle.
"""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING

import pulsar as official

import pulsar_ext
from pulsar_ext import PulsarAdmin
from pulsar_ext.testing import PulsarProcess

if TYPE_CHECKING:
    from collections.abc import Callable

from acks_common import (
    BATCH,
    KINDS,
    SETTINGS,
    SUBSCRIPTION,
    TYPES,
    Outcome,
    Sender,
    label_of,
    quiet,
    subscribe,
    unacknowledged,
)

__all__ = ["run_crashes"]


def run_crashes(cycles: int, messages: int = 40, say: Callable[[str], None] = print) -> list[Outcome]:
    """Kill consuming processes, by turns of every type and kind."""
    combinations = [(type_name, kind) for type_name in TYPES for kind in KINDS]
    with PulsarProcess("small-chunks", settings=SETTINGS) as broker:
        client = official.Client(broker.service_url, logger=quiet())
        subjects = {}
        for type_name, kind in combinations[: cycles if cycles < len(combinations) else None]:
            topic = f"crash-{type_name}-{kind}"
            with PulsarAdmin(broker.admin_url) as admin:
                admin.create_subscription(topic, SUBSCRIPTION, "earliest")
            subjects[type_name, kind] = _Subscription(
                topic, Outcome("crash", type_name, kind), Sender(client, topic, kind)
            )
        names = list(subjects)
        for cycle in range(cycles):
            subject = subjects[names[cycle % len(names)]]
            subject.sender.send(messages // 10 if subject.outcome.kind == "chunked" else messages)
            subject.crash(broker)
            if cycle % 10 == 9:
                say(f"crash: cycle {cycle + 1}, {sum(one.outcome.confirmed_again for one in subjects.values())} again")
        with PulsarAdmin(broker.admin_url) as admin:
            for subject in subjects.values():
                subject.finish(broker, admin)
        client.close()
        return [subject.outcome for subject in subjects.values()]


class _Subscription:
    """A subscription whose processes are killed, and their earlier reports."""

    def __init__(self, topic: str, outcome: Outcome, sender: Sender) -> None:
        self.topic, self.outcome, self.sender = topic, outcome, sender
        self._delivered: Counter[int] = Counter()
        self._confirmed: set[int] = set()

    def crash(self, broker: PulsarProcess) -> None:
        """Run a process until it has confirmed k messages, and kill it at a random time after that."""
        self.outcome.cycles += 1
        count = random.randrange(1, 4 if self.outcome.kind == "chunked" else 30)  # not a secret
        if self.outcome.kind == "batched":
            count = (count + BATCH - 1) // BATCH * BATCH  # the cursor holds whole batches
        with self._process(broker, count) as process:
            for line in process.stdout:  # pyright: ignore[reportOptionalIterable]
                if self._take_report(line):
                    break
            time.sleep(random.random() * 0.15)
            process.kill()
            for line in process.stdout:  # pyright: ignore[reportOptionalIterable]
                self._take_report(line)

    def finish(self, broker: PulsarProcess, admin: PulsarAdmin) -> None:
        """Consume the remaining messages, and count."""
        left = self.sender.sent - len(self._confirmed)
        with self._process(broker, left) as process:
            out, _ = process.communicate(timeout=120)
        for line in out.splitlines():
            self._take_report(line)
        outcome = self.outcome
        outcome.sent, outcome.delivered = self.sender.sent, len(self._delivered)
        outcome.lost = outcome.sent - outcome.delivered
        outcome.again = sum(self._delivered.values()) - outcome.delivered
        remains = unacknowledged(admin, self.topic)
        if remains:
            outcome.holes += 1
            outcome.notes.append(remains)

    def _process(self, broker: PulsarProcess, count: int) -> subprocess.Popen[str]:
        arguments = [broker.service_url, broker.admin_url, self.topic, self.outcome.type, self.outcome.kind, str(count)]
        return subprocess.Popen(  # this file
            [sys.executable, __file__, *arguments], stdout=subprocess.PIPE, text=True
        )

    def _take_report(self, line: str) -> bool:
        word, _, rest = line.partition(" ")
        labels = [int(text) for text in rest.split()]
        if word == "got":
            self._delivered.update(labels)
            redelivered = self._confirmed.intersection(labels)
            self.outcome.confirmed_again += len(redelivered)
            if redelivered:
                self.outcome.notes.append(f"confirmed, and redelivered: {sorted(redelivered)[:5]}")
        elif word == "confirmed":
            self._confirmed.update(labels)
            return True
        return False


def child(arguments: list[str]) -> None:
    """Receive, acknowledge and confirm `count` messages, then continue without confirming until killed or idle."""
    service_url, admin_url, topic, type_name, kind, count = arguments
    client = pulsar_ext.Client(service_url, admin=admin_url, logger=quiet())
    consumer = subscribe(client, topic, kind, type_name)
    acknowledged: list[int] = []
    with contextlib.suppress(official.Timeout):
        for _ in range(int(count)):
            message = consumer.receive(3_000)
            label = label_of(message.data())
            os.write(1, b"got %d\n" % label)
            consumer.acknowledge(message)
            acknowledged.append(label)
    consumer.flush_acks(confirm=True, timeout_ms=20_000)
    os.write(1, f"confirmed {' '.join(map(str, acknowledged))}\n".encode())
    with contextlib.suppress(official.Timeout):
        while True:
            message = consumer.receive(1_000)
            os.write(1, b"got %d\n" % label_of(message.data()))
            consumer.acknowledge(message)
    client.close()


if __name__ == "__main__":
    child(sys.argv[1:])
