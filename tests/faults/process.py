"""Workers with `process()` that are ended: every message is finally handled or a dead letter, and none is lost.

    python tests/faults/process.py [--cycles N] [--json]

Workers handle messages four at a time, with the blocking or the asyncio client. Some handlers fail, once or always:
their messages are redelivered as retry letters, and finally become dead letters. Once a worker has started, one of
these happens, by turns:

- `kill`: the worker is killed with SIGKILL.
- `term`: it gets SIGTERM, and has to exit with status 0. Started handlers have to end, and their messages must not be
  redelivered.
- `broker`: the broker is killed with SIGKILL and restarted, and the worker continues; then it gets SIGTERM.

The next worker continues. Starts a cluster of its own, which needs Java. Exits with 1 if a message was lost, stayed, or
was redelivered after a clean end.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import pulsar as official
from acks_common import (
    SETTINGS,
    SUBSCRIPTION,
    TYPES,
    Outcome,
    Sender,
    dead_letters,
    label_of,
    note_remains,
    print_outcomes,
    quiet,
    table,
    unacknowledged,
)
from seeded import SeededParser, seed_child

import pulsar_ext
import pulsar_ext.asyncio
from pulsar_ext import PulsarAdmin
from pulsar_ext.testing import PulsarCluster

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["run_faults"]

FAULTS: Final = ("kill", "term", "broker")
KINDS: Final = ("plain", "batched", "chunked")
_MOST: Final = 2
_AT_WORK_SECONDS: Final = 60.0
_END_SECONDS: Final = 60.0
_CLEAN_SECONDS: Final = 120.0


def run_faults(cycles: int, messages: int = 40, say: Callable[[str], None] = lambda _: None) -> list[Outcome]:
    """End workers in each way by turns, for every type of subscription and kind of message; return a row of each."""
    with contextlib.ExitStack() as stack:
        # Not a standalone: its store is in the killed process, and has lost a ledger that way.
        broker = stack.enter_context(PulsarCluster("small-chunks", brokers=1, bookies=1, settings=SETTINGS))
        admin = stack.enter_context(PulsarAdmin(broker.admin_url))
        client = official.Client(broker.service_url, logger=quiet())
        stack.callback(client.close)
        combinations = [(type_name, kind) for type_name in TYPES for kind in KINDS]
        subjects = []
        for type_name, kind in random.sample(combinations, min(cycles, len(combinations))):  # no secret
            topic = f"persistent://public/default/process-{type_name}-{kind}"
            admin.create_subscription(topic, SUBSCRIPTION, "earliest")
            # Of a topic without a subscription the broker keeps the last ledger only: each kill ends one.
            admin.create_subscription(f"{topic}-{SUBSCRIPTION}-DLQ", "kept", "earliest")
            sender = Sender(client, topic, kind)
            subjects.append(_Subject(broker, topic, Outcome("process", type_name, kind), sender))
        for cycle in range(cycles):
            subject, turn = subjects[cycle % len(subjects)], cycle // len(subjects)
            fault = FAULTS[(cycle + turn) % len(FAULTS)]
            subject.sender.send(messages // 4 if subject.outcome.kind == "chunked" else messages)
            subject.endure(fault, awaited=random.random() < 0.5)  # not a secret
            if fault == "broker":
                for one in subjects:
                    one.clean.clear()  # a killed broker may not have stored every acknowledgement
            if cycle % 10 == 9:
                say(f"{cycle + 1} ended")
        for subject in subjects:
            subject.finish(client, admin)
            say(f"{subject.outcome.type} {subject.outcome.kind}: {subject.outcome.lost} lost")
        return [subject.outcome for subject in subjects]


class _Worker:
    """A worker in a process of its own, and its output."""

    def __init__(self, broker: PulsarCluster, topic: str, type_name: str, *, awaited: bool) -> None:
        client = "awaited" if awaited else "blocking"
        arguments = [broker.service_url, broker.admin_url, topic, type_name, client]
        self.process = subprocess.Popen(  # this very file
            [sys.executable, __file__, "child", *arguments], stdout=subprocess.PIPE, text=True
        )
        self.said: dict[str, Counter[int]] = {"began": Counter(), "did": Counter(), "failed": Counter()}
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        with self.process.stdout as lines:  # type: ignore[union-attr]  # pyright: ignore[reportOptionalContextManager]
            for line in lines:
                word, number = line.split()
                self.said[word][int(number)] += 1

    def wait_until_at_work(self) -> bool:
        """Wait for the first handler; return False if none started."""
        deadline = time.monotonic() + _AT_WORK_SECONDS
        while not self.said["began"] and self.process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        return bool(self.said["began"])

    def end(self, number: int) -> int:
        """Send the worker a signal, wait for its end, and return its status."""
        self.process.send_signal(number)
        try:
            self.process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return 1 << 8
        finally:
            self._reading.join()
        return self.process.returncode


class _Subject:
    """A subscription whose workers are ended."""

    def __init__(self, broker: PulsarCluster, topic: str, outcome: Outcome, sender: Sender) -> None:
        self._broker, self._topic = broker, topic
        self.outcome, self.sender = outcome, sender
        self.clean: set[int] = set()
        """Messages handled by workers that ended by themselves."""
        self._did: Counter[int] = Counter()

    def endure(self, fault: str, *, awaited: bool) -> None:
        """Run a worker until it has started, and inject one fault."""
        self.outcome.cycles += 1
        worker = _Worker(self._broker, self._topic, self.outcome.type, awaited=awaited)
        if not worker.wait_until_at_work():
            self.outcome.notes.append(f"no handler started before {fault}")
        time.sleep(random.random() * 0.4)  # no secret
        if fault == "broker":
            self._broker.kill(*self._broker.brokers)
            self._broker.restart(*self._broker.brokers)
            time.sleep(random.random() * 2)  # no secret
            self.clean.clear()
        self._end(worker, fault)

    def _end(self, worker: _Worker, fault: str) -> None:
        status = worker.end(signal.SIGKILL if fault == "kill" else signal.SIGTERM)
        began, did = worker.said["began"], worker.said["did"]
        again = self.clean & did.keys()
        if again:
            self.outcome.confirmed_again += len(again)
            self.outcome.notes.append(f"redelivered after a clean end: {sorted(again)}")
        self._did += did
        if fault == "kill":
            return
        if status != 0:
            self.outcome.holes += 1
            self.outcome.notes.append(f"{fault}: a worker ended with {status}")
        if began != did + worker.said["failed"]:
            self.outcome.holes += 1
            self.outcome.notes.append(f"{fault}: handlers started and did not end")
        self.clean |= did.keys()

    def finish(self, client: Any, admin: PulsarAdmin) -> None:
        """Handle the rest with a worker, and count handled messages, dead letters, and unacknowledged ones."""
        topics = (self._topic, f"{self._topic}-{SUBSCRIPTION}-RETRY")
        if any(unacknowledged(admin, one) for one in topics):
            worker = _Worker(self._broker, self._topic, self.outcome.type, awaited=False)
            worker.wait_until_at_work()  # before, a SIGTERM ends it as by default
            deadline = time.monotonic() + _CLEAN_SECONDS
            while any(unacknowledged(admin, one) for one in topics) and time.monotonic() < deadline:
                time.sleep(0.5)
            self._end(worker, "term")
        dead = {label for label in dead_letters(client, self._topic) if label < self.sender.sent}
        done, outcome = {*self._did, *dead}, self.outcome
        outcome.sent, outcome.delivered = self.sender.sent, len(done)
        outcome.lost, outcome.again = outcome.sent - len(done), self._did.total() - len(self._did)
        if outcome.lost:
            outcome.notes.append(f"lost: {sorted(set(range(outcome.sent)) - done)}")
        note_remains(outcome, admin, topics)


def child(service_url: str, admin_url: str, topic: str, type_name: str, client: str) -> None:
    """Run as a worker, until a SIGTERM."""
    options: dict[str, Any] = {
        "consumer_type": TYPES[type_name],
        "initial_position": official.InitialPosition.Earliest,
        "receiver_queue_size": 20,
        "batch_index_ack_enabled": True,
        "enable_retry": True,
        "dead_letter_policy": official.ConsumerDeadLetterPolicy(_MOST),
    }
    later = pulsar_ext.ReconsumeLater(pulsar_ext.MultiplierRedeliveryBackoff(20, 100))
    processing: dict[str, Any] = {"concurrency": 4, "on_error": later}
    if client == "blocking":
        with pulsar_ext.Client(service_url, admin=admin_url, logger=quiet()) as blocking:

            def handle(message: Any) -> None:
                begin(message)
                time.sleep(random.random() * 0.05)  # no secret
                end(message)

            blocking.subscribe(topic, SUBSCRIPTION, **options).process(handle, **processing)
    else:
        asyncio.run(_await(service_url, admin_url, topic, options, processing))


async def _await(
    service_url: str, admin_url: str, topic: str, options: dict[str, Any], processing: dict[str, Any]
) -> None:
    async with pulsar_ext.asyncio.Client(service_url, admin=admin_url, logger=quiet()) as client:

        async def handle(message: Any) -> None:
            begin(message)
            await asyncio.sleep(random.random() * 0.05)  # no secret
            end(message)

        await (await client.subscribe(topic, SUBSCRIPTION, **options)).process(handle, **processing)


def begin(message: Any) -> None:
    os.write(1, b"began %d\n" % label_of(message.data()))


def end(message: Any) -> None:
    """Fail for every fifth message once, and for every seventh always."""
    label, times = label_of(message.data()), int(message.properties().get("RECONSUMETIMES", "0"))
    if label % 7 == 3 or (label % 5 == 0 and times == 0):
        os.write(1, b"failed %d\n" % label)
        raise ValueError(label)
    os.write(1, b"did %d\n" % label)


def main() -> int:
    """Run the requested cycles."""
    parser = SeededParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cycles", type=int, default=102, help="number of ended workers (102)")
    parser.add_argument("--json", action="store_true", dest="as_json", help="print JSON instead of a table")
    arguments = parser.parse_args()
    outcomes = run_faults(arguments.cycles, say=lambda text: print(text, file=sys.stderr, flush=True))
    outcomes.sort(key=lambda one: list(TYPES).index(one.type))
    counts = {"ended": "cycles", "sent": "sent", "lost": "lost", "stayed": "holes"}
    counts["again after a clean end"] = "confirmed_again"
    rows = table(outcomes, {"subscription": "type"}, counts, "handled twice")
    return print_outcomes(outcomes, rows, as_json=arguments.as_json)


if __name__ == "__main__":
    if sys.argv[1:2] == ["child"]:
        seed_child()
        import logging

        logging.getLogger("pulsar_ext").setLevel(logging.CRITICAL)  # failing handlers are expected here
        child(*sys.argv[2:])
    else:
        sys.exit(main())
