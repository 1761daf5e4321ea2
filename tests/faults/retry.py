"""Retry letters of killed processes: every message finally becomes a dead letter, none is lost.

    python tests/faults/retry.py [--cycles N] [--only between|random] [--json]

A process calls `reconsume_later()` for each message that it receives, until the policy makes it a dead letter.
`between`: it is killed with SIGKILL once a letter is persisted and its message is not acknowledged yet.
`random`: it is killed at any time. The next process continues. Finally there is a dead letter of each message, and
the topic and its retry topic have no backlog. A message whose process died between the two has two dead letters: these
are counted.

Starts a broker of its own, which needs Java. Exits with 1 if a message was lost or stayed.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
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
from pulsar_ext import PulsarAdmin
from pulsar_ext.testing import PulsarProcess

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["run_kills"]

KILLS: Final = ("between", "random")
KINDS: Final = ("plain", "batched", "chunked")
MOST: Final = 2
_DELAY_MILLIS: Final = 30
_IDLE_MILLIS: Final = 3_000
_CLEAN_SECONDS: Final = 60.0


def run_kills(kill: str, cycles: int, messages: int = 20, say: Callable[[str], None] = lambda _: None) -> list[Outcome]:
    """Kill processes by turns of every type of subscription and every kind of message; return a row of each."""
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(PulsarProcess("small-chunks", settings=SETTINGS))
        admin = stack.enter_context(PulsarAdmin(broker.admin_url))
        client = official.Client(broker.service_url, logger=quiet())
        stack.callback(client.close)
        combinations = [(type_name, kind) for type_name in TYPES for kind in KINDS]
        subjects = []
        for type_name, kind in random.sample(combinations, min(cycles, len(combinations))):  # not a secret
            topic = f"persistent://public/default/{kill}-{type_name}-{kind}"
            admin.create_subscription(topic, SUBSCRIPTION, "earliest")
            sender = Sender(client, topic, kind)
            subjects.append(_Subject(broker, topic, Outcome(kill, type_name, kind), sender))
        for cycle in range(cycles):
            subject = subjects[cycle % len(subjects)]
            subject.sender.send(messages // 4 if subject.outcome.kind == "chunked" else messages)
            subject.kill()
            if cycle % 10 == 9:
                say(f"{kill}: {cycle + 1} killed")
        for subject in subjects:
            subject.finish(client, admin)
            say(f"{kill} {subject.outcome.type} {subject.outcome.kind}: {subject.outcome.lost} lost")
        return [subject.outcome for subject in subjects]


class _Subject:
    """A subscription whose processes are killed."""

    def __init__(self, broker: PulsarProcess, topic: str, outcome: Outcome, sender: Sender) -> None:
        self._broker, self._topic = broker, topic
        self.outcome, self.sender = outcome, sender

    def kill(self) -> None:
        """Run a process until it has killed itself, or is killed some time after its first message."""
        self.outcome.cycles += 1
        between = self.outcome.fault == "between"
        with self._process(random.randrange(1, 6) if between else 0) as process:  # not a secret
            if not between:
                process.stdout.readline()  # type: ignore[union-attr]  # pyright: ignore[reportOptionalMemberAccess]
                time.sleep(random.random() * 0.4)  # not a secret
                process.kill()
            process.communicate()
        if process.returncode != -signal.SIGKILL:
            self.outcome.notes.append(f"a process ended with {process.returncode} before it was killed")

    def finish(self, client: Any, admin: PulsarAdmin) -> None:
        """Handle the rest with a process, and count the dead letters, and unacknowledged entries."""
        with self._process(0) as process:
            process.communicate()
        letters = [label for label in dead_letters(client, self._topic) if label < self.sender.sent]
        outcome = self.outcome
        outcome.sent, outcome.delivered = self.sender.sent, len(set(letters))
        outcome.lost, outcome.again = outcome.sent - outcome.delivered, len(letters) - outcome.delivered
        if outcome.lost:
            entries = admin.internal_stats(f"{self._topic}-{SUBSCRIPTION}-DLQ").last_confirmed_entry
            outcome.notes.append(f"the last dead letter is at {entries}")
        note_remains(outcome, admin, (self._topic, f"{self._topic}-{SUBSCRIPTION}-RETRY"))

    def _process(self, letters: int) -> subprocess.Popen[str]:
        arguments = [self._broker.service_url, self._broker.admin_url, self._topic, self.outcome.type, str(letters)]
        return subprocess.Popen(  # this file
            [sys.executable, __file__, "child", *arguments], stdout=subprocess.PIPE, text=True
        )


def child(service_url: str, admin_url: str, topic: str, type_name: str, letters: str) -> None:
    """Retry all messages until none arrives, or die after `letters` letters, if that is not 0."""
    client = pulsar_ext.Client(service_url, admin=admin_url, logger=quiet())
    consumer = client.subscribe(
        topic,
        SUBSCRIPTION,
        consumer_type=TYPES[type_name],
        initial_position=official.InitialPosition.Earliest,
        enable_retry=True,
        dead_letter_policy=official.ConsumerDeadLetterPolicy(MOST),
    )
    left = int(letters)
    deadline = time.monotonic() + _CLEAN_SECONDS
    while time.monotonic() < deadline:
        try:
            message = consumer.receive(_IDLE_MILLIS)
        except official.Timeout:
            consumer.flush_acks()
            retry = f"{topic}-{SUBSCRIPTION}-RETRY"
            with PulsarAdmin(admin_url) as admin:
                if not any(unacknowledged(admin, one) for one in (topic, retry)):
                    break
            continue
        os.write(1, b"got %d\n" % label_of(message.data()))
        left -= 1
        if left == 0:
            pulsar_ext.Consumer.acknowledge = _die  # type: ignore[method-assign]
        consumer.reconsume_later(message, random.randrange(_DELAY_MILLIS))  # not a secret
    client.close()


def _die(_: Any, __: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> int:
    """Run the requested kills."""
    parser = SeededParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cycles", type=int, default=100, help="number of killed processes of each way (100)")
    parser.add_argument("--only", choices=KILLS, help="one way")
    parser.add_argument("--json", action="store_true", dest="as_json", help="print JSON instead of a table")
    arguments = parser.parse_args()

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    outcomes: list[Outcome] = []
    for kill in KILLS:
        if arguments.only in (None, kill):
            outcomes += run_kills(kill, arguments.cycles, say=say)
    outcomes.sort(key=lambda one: (one.fault, list(TYPES).index(one.type)))
    counts = {"kills": "cycles", "sent": "sent", "lost": "lost", "stayed": "holes"}
    rows = table(outcomes, {"killed": "fault", "subscription": "type"}, counts, "dead letters sent twice")
    return print_outcomes(outcomes, rows, as_json=arguments.as_json)


if __name__ == "__main__":
    if sys.argv[1:2] == ["child"]:
        seed_child()
        child(*sys.argv[2:])
    else:
        sys.exit(main())
