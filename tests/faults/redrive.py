"""Redrives that are killed: every dead letter is finally on the topic that it came from, once.

    python tests/faults/redrive.py [--kills N] [--messages N] [--deduplicates] [--json]

Letters are sent in batches, and some of them in chunks. `pulsar-ext redrive` is killed with SIGKILL at random shares of
the letters; the last run is not killed. Then the topic is read, and counted is what was lost, stored twice, or stored
out of the order of its key.

Starts a broker of its own, which needs Java. Exits with 1 if any count is not 0.
"""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from acks_common import quiet
from seeded import SeededParser

import pulsar_ext
from pulsar_ext import PulsarAdmin
from pulsar_ext.testing import PulsarProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["run_kills"]

TOPIC: Final = "persistent://public/redrive/topic"
DLQ: Final = f"{TOPIC}-DLQ"
KEYS: Final = 100
_LARGE_EVERY: Final = 5_000
_LARGE_BYTES: Final = 250_000


@dataclass
class Outcome:
    """Counts of all letters after the last run."""

    letters: int
    kills: int = 0
    lost: int = 0
    twice: int = 0
    disordered: int = 0
    backlog: int = 0
    markers: int = 0
    seconds: float = 0.0

    @property
    def failed(self) -> bool:
        """True if a letter was lost, stored twice or out of order, or if something remains."""
        return bool(self.lost or self.twice or self.disordered or self.backlog or self.markers)


def run_kills(
    kills: int, messages: int, *, deduplicates: bool = False, say: Callable[[str], None] = lambda _: None
) -> Outcome:
    """Kill redrives of this number of letters, and count what the topic finally has."""
    outcome, began = Outcome(messages), time.monotonic()
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(PulsarProcess("small-chunks"))
        admin = stack.enter_context(PulsarAdmin(broker.admin_url))
        client = pulsar_ext.Client(broker.service_url, admin=broker.admin_url, logger=quiet())
        stack.callback(client.close)
        admin.create_namespace("public/redrive")
        admin.set_deduplication("public/redrive", value=deduplicates)
        for topic, subscription in ((TOPIC, "application"), (DLQ, "redrive")):
            admin.create_subscription(topic, subscription, "earliest")
        send_letters(client, messages)
        say(f"{messages:,} letters")
        for share in sorted(random.random() for _ in range(kills)):  # not a secret
            outcome.kills += run_redrive(broker, admin, int(share * messages))
            say(f"{outcome.kills} killed, {copies(admin):,} copies")
        run_redrive(broker, admin, None)
        with client.read(TOPIC) as reading:
            count_copies(outcome, (int(message.data().partition(b".")[0]) for message in reading))
        outcome.backlog = admin.stats(DLQ, precise_backlog=True).subscriptions["redrive"].backlog_entries
        outcome.markers = len(admin.subscriptions(TOPIC)) - 1
    outcome.seconds = round(time.monotonic() - began, 1)
    return outcome


def send_letters(client: Any, messages: int) -> None:
    """Send letters with an ascending number and a key, most of them in batches."""
    batched: dict[str, Any] = {"batching_enabled": True, "batching_type": pulsar_ext.BatchingType.KeyBased}
    for first in range(0, messages, _LARGE_EVERY):
        numbers = range(first, min(first + _LARGE_EVERY, messages))
        for some, options in ((numbers[:1], {"chunking_enabled": True}), (numbers[1:], batched)):
            with client.create_producer(DLQ, **options) as producer:
                producer.send_many(
                    [
                        b"%d." % number + b"x" * (_LARGE_BYTES if "chunking_enabled" in options else 0)
                        for number in some
                    ],
                    partition_keys=[f"k{number % KEYS}" for number in some],
                    properties=[{"REAL_TOPIC": TOPIC, "ORIGIN_MESSAGE_ID": f"1:{number}:-1"} for number in some],
                )


def copies(admin: PulsarAdmin) -> int:
    """Return the number of stored messages since the broker started."""
    return admin.stats(TOPIC).messages_in


def run_redrive(broker: PulsarProcess, admin: PulsarAdmin, kill_at: int | None) -> bool:
    """Run a redrive, and kill it when the topic has this number of messages; return True if it was killed."""
    command = [sys.executable, "-c", "from pulsar_ext.cli import main; main()", "redrive", DLQ]
    urls = ["--url", broker.service_url, "--admin-url", broker.admin_url]
    least = copies(admin) + 1  # so that each killed run has sent something
    with subprocess.Popen([*command, *urls], stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            if kill_at is not None and copies(admin) >= max(kill_at, least):
                process.kill()
                process.wait()
            time.sleep(0.002)
    if process.returncode not in (0, -9):
        raise RuntimeError(f"a redrive ended with {process.returncode}")
    return process.returncode != 0


def count_copies(outcome: Outcome, numbers: Iterable[int]) -> None:
    """Count what is missing, repeated, or out of the order of its key."""
    found: Counter[int] = Counter()
    last: dict[int, int] = {}
    for number in numbers:
        found[number] += 1
        outcome.disordered += number < last.get(number % KEYS, -1)
        last[number % KEYS] = number
    outcome.lost = outcome.letters - len(found)
    outcome.twice = found.total() - len(found)


def main() -> int:
    """Run the requested kills."""
    parser = SeededParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=50, help="number of killed redrives (50)")
    parser.add_argument("--messages", type=int, default=1_000_000, help="number of letters (1,000,000)")
    parser.add_argument("--deduplicates", action="store_true", help="let the broker deduplicate the topic")
    parser.add_argument("--json", action="store_true", dest="as_json", help="print JSON instead of a table")
    arguments = parser.parse_args()
    outcome = run_kills(
        arguments.kills,
        arguments.messages,
        deduplicates=arguments.deduplicates,
        say=lambda text: print(text, file=sys.stderr, flush=True),
    )
    found = asdict(outcome)
    if arguments.as_json:
        print(json.dumps(found))
    else:
        print(f"| {' | '.join(found)} |", "|" + "--:|" * len(found), sep="\n")
        print(f"| {' | '.join(f'{value:,}' for value in found.values())} |")
    return 1 if outcome.failed else 0


if __name__ == "__main__":
    sys.exit(main())
