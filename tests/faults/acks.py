"""Acknowledgements under faults: nothing is lost, nothing confirmed is redelivered, no hole remains.

    python tests/faults/acks.py [--cycles N] [--only crash|kill|unload|cut] [--ahead] [--json]

`crash`: a process consumes k of n messages, flushes with confirmation, and is killed with SIGKILL; the next one
continues. Nothing confirmed may be redelivered, and everything else has to be.

`kill`, `unload`, `cut`: consumers of sixteen subscriptions, of each type and for each kind of message, receive and
acknowledge while the broker is killed and restarted, every topic is unloaded, or every connection is cut, once a
cycle. After each cycle every message was delivered, the backlog is zero and no hole remains. With `--ahead` they fetch
all available messages ahead of every receive, as a loop at full speed sometimes does.

Starts brokers of its own, which need Java. Exits with 1 if a message was lost, redelivered or left unacknowledged.
"""

from __future__ import annotations

import contextlib
import random
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Final

import pulsar as official
from seeded import SeededParser

import pulsar_ext
from pulsar_ext import PulsarAdmin
from pulsar_ext.testing import FaultProxy, PulsarProcess

if TYPE_CHECKING:
    from collections.abc import Callable

from acks_common import KINDS, SETTINGS, TYPES, Outcome, Sender, print_outcomes, quiet, table, unacknowledged
from acks_crash import run_crashes
from acks_streams import Stream, wait_until_acknowledged

__all__ = ["Outcome", "run_crashes", "run_faults"]

FAULTS: Final = ("kill", "unload", "cut")


def run_faults(
    fault: str, cycles: int, messages: int = 40, say: Callable[[str], None] = print, *, ahead: bool = False
) -> list[Outcome]:
    """Consume under one fault of the broker or the connection in each cycle."""
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(PulsarProcess("small-chunks", settings=SETTINGS))
        proxy = stack.enter_context(FaultProxy.to(broker.service_url))
        admin = stack.enter_context(PulsarAdmin(broker.admin_url))
        sending = official.Client(broker.service_url, logger=quiet())
        stack.callback(sending.close)
        client = pulsar_ext.Client(proxy.service_url, admin=broker.admin_url, logger=quiet())
        stack.callback(client.close)
        streams = []
        for type_name in TYPES:
            for kind in KINDS:
                topic = f"{fault}-{type_name}-{kind}"
                outcome = Outcome(fault, type_name, kind)
                streams.append(Stream(client, Sender(sending, topic, kind), topic, outcome, ahead=ahead))
        for cycle in range(cycles):
            began = time.monotonic()
            for stream in streams:
                stream.send(messages)
            time.sleep(random.random() * 0.3)  # at a random time
            _FAULT[fault](broker, proxy, admin, [stream.topic for stream in streams])
            wait_until_acknowledged(partial(unacknowledged, admin), streams, cycle)
            if cycle % 10 == 9:
                holes = sum(stream.outcome.holes for stream in streams)
                say(f"{fault}: cycle {cycle + 1}, {time.monotonic() - began:.1f} s, {holes} holes so far")
        for stream in streams:
            stream.stop()
            stream.outcome.cycles = cycles
        return [stream.outcome for stream in streams]


def _kill(broker: PulsarProcess, _: FaultProxy, __: PulsarAdmin, ___: list[str]) -> None:
    broker.kill()
    broker.restart()


def _unload(_: PulsarProcess, __: FaultProxy, admin: PulsarAdmin, topics: list[str]) -> None:
    for topic in topics:
        admin.unload(topic)


def _cut(_: PulsarProcess, proxy: FaultProxy, __: PulsarAdmin, ___: list[str]) -> None:
    proxy.cut()


_FAULT: Final = {"kill": _kill, "unload": _unload, "cut": _cut}


def main() -> int:
    """Run the requested faults."""
    parser = SeededParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cycles", type=int, default=100, help="of each fault (100)")
    parser.add_argument("--only", choices=("crash", *FAULTS), help="one fault")
    parser.add_argument("--ahead", action="store_true", help="fetch ahead of every receive (not for crash)")
    parser.add_argument("--json", action="store_true", dest="as_json", help="print JSON instead of a table")
    arguments = parser.parse_args()

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    outcomes: list[Outcome] = []
    for fault in ("crash", *FAULTS):
        if arguments.only in (None, fault):
            run = run_crashes(arguments.cycles, say=say) if fault == "crash" else None
            outcomes += run_faults(fault, arguments.cycles, say=say, ahead=arguments.ahead) if run is None else run
    counts = {"cycles": "cycles", "sent": "sent", "lost": "lost", "confirmed, again": "confirmed_before_crash"}
    head = {"fault": "fault", "subscription": "type"}
    rows = table(outcomes, head, {**counts, "holes": "holes"}, "delivered again")
    return print_outcomes(outcomes, rows, as_json=arguments.as_json)


if __name__ == "__main__":
    sys.exit(main())
