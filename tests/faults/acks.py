"""Acknowledgements under faults: nothing lost, nothing confirmed comes again, no hole is left.

    python tests/faults/acks.py [--cycles N] [--only crash|kill|unload|cut] [--ahead] [--json]

`crash`: a process consumes k of n messages, flushes with confirmation, and is killed with SIGKILL; the next one goes
on. Nothing that was confirmed may be delivered again, and everything that was not has to be.

`kill`, `unload`, `cut`: consumers of sixteen subscriptions, of each type and for each kind of message, receive and
acknowledge while the broker is killed and restarted, every topic is unloaded, or every connection is cut, once a
cycle. After each cycle every message was delivered, the backlog is zero and no hole remains. With `--ahead` they fetch
whatever there is ahead of every receive, as a loop at full speed does now and then.

Starts brokers of its own, which need Java. Exits with 1 if anything was lost, came again or stayed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pulsar as official

import pulsar_ext
from pulsar_ext import PulsarAdmin
from pulsar_ext.testing import FaultProxy, PulsarProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Outcome", "run_crashes", "run_faults"]

KINDS: Final = ("plain", "batched", "batch-index", "chunked")
TYPES: Final = {
    "Exclusive": official.ConsumerType.Exclusive,
    "Failover": official.ConsumerType.Failover,
    "Shared": official.ConsumerType.Shared,
    "Key_Shared": official.ConsumerType.KeyShared,
}
FAULTS: Final = ("kill", "unload", "cut")
_SUBSCRIPTION: Final = "s"
_BATCH: Final = 10
_CHUNKED_BYTES: Final = 250_000
_CYCLE_SECONDS: Final = 45.0
_SETTINGS: Final = {
    "acknowledgmentAtBatchIndexLevelEnabled": True,
    "managedLedgerDefaultMarkDeleteRateLimit": 1.0,
}


@dataclass
class Outcome:
    """What became of one subscription's messages over all cycles."""

    fault: str
    type: str
    kind: str
    cycles: int = 0
    sent: int = 0
    delivered: int = 0
    lost: int = 0
    again: int = 0
    confirmed_again: int = 0
    holes: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        """Whether anything happened that must not."""
        return bool(self.lost or self.confirmed_again or self.holes)


def _quiet() -> Any:
    """Give a logger for nobody: reconnections are what happens here."""
    return official.FileLogger(official.LoggerLevel.Error, os.devnull)


def _label(data: bytes) -> int:
    return int(data.split(b".", 1)[0])


class _Sender:
    """Sends messages of one kind, and returns when all are persisted."""

    def __init__(self, client: Any, topic: str, kind: str) -> None:
        options: dict[str, Any] = {"send_timeout_millis": 0}
        if kind in ("batched", "batch-index"):
            options |= {
                "batching_enabled": True,
                "batching_max_messages": _BATCH,
                "batching_max_publish_delay_ms": 50,
            }
        if kind == "chunked":
            options["chunking_enabled"] = True
        self._producer = client.create_producer(topic, **options)
        self._size = _CHUNKED_BYTES if kind == "chunked" else 0
        self.sent = 0

    def send(self, count: int) -> None:
        """Send so many more."""
        for _ in range(count):
            text = b"%d." % self.sent
            self._producer.send_async(text.ljust(self._size, b"x"), None)
            self.sent += 1
        self._producer.flush()


def _subscribe(client: Any, topic: str, kind: str, type_name: str, queue: int = 20) -> Any:
    return client.subscribe(
        topic,
        _SUBSCRIPTION,
        consumer_type=TYPES[type_name],
        initial_position=official.InitialPosition.Earliest,
        receiver_queue_size=queue,
        batch_index_ack_enabled=kind == "batch-index",
        ack_group_time_ms=100,
    )


# -- the broker's faults -----------------------------------------------------------------------------------------------


class _Stream:
    """One subscription: its sender, its consumers, and what they saw."""

    def __init__(self, client: Any, sender: _Sender, topic: str, outcome: Outcome, *, ahead: bool) -> None:
        self.topic, self.outcome, self._sender, self._ahead = topic, outcome, sender, ahead
        self.seen: Counter[int] = Counter()
        self._stop = threading.Event()
        count = 1 if outcome.type == "Exclusive" else 2
        queue = 1_000 if ahead else 20
        self._consumers = [_subscribe(client, topic, outcome.kind, outcome.type, queue) for _ in range(count)]
        self._threads = [threading.Thread(target=self._consume, args=(one,), daemon=True) for one in self._consumers]
        for thread in self._threads:
            thread.start()

    def send(self, count: int) -> None:
        """Send so many more, whole batches of them."""
        self._sender.send(count // 10 if self.outcome.kind == "chunked" else count)

    def missing(self) -> int:
        """How many sent messages were not delivered yet."""
        return self._sender.sent - len(self.seen)

    def stop(self) -> None:
        """Consume no more."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self.outcome.sent, self.outcome.delivered = self._sender.sent, len(self.seen)
        self.outcome.lost = self.missing()
        self.outcome.again = sum(self.seen.values()) - len(self.seen)

    def _consume(self, consumer: Any) -> None:
        dice = random.Random(id(consumer))
        held: list[Any] = []
        while not self._stop.is_set():
            if self._ahead:
                consumer._prefetch.fetch()
            with contextlib.suppress(official.Timeout):
                message = consumer.receive(100)
                self.seen[_label(message.data())] += 1
                held.append(message)
                time.sleep(dice.random() * 0.01)
                if dice.random() > 0.2 and len(held) < 8:  # some wait, and go out of order
                    continue
            dice.shuffle(held)
            for message in held:
                consumer.acknowledge(message)
            held.clear()


def run_faults(
    fault: str, cycles: int, messages: int = 40, say: Callable[[str], None] = print, *, ahead: bool = False
) -> list[Outcome]:
    """Consume under one fault of the broker or the connection a cycle."""
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(PulsarProcess("small-chunks", settings=_SETTINGS))
        proxy = stack.enter_context(FaultProxy.to(broker.service_url))
        admin = stack.enter_context(PulsarAdmin(broker.admin_url))
        sending = official.Client(broker.service_url, logger=_quiet())
        stack.callback(sending.close)
        client = pulsar_ext.Client(proxy.service_url, admin=broker.admin_url, logger=_quiet())
        stack.callback(client.close)
        streams = []
        for type_name in TYPES:
            for kind in KINDS:
                topic = f"{fault}-{type_name}-{kind}"
                outcome = Outcome(fault, type_name, kind)
                streams.append(_Stream(client, _Sender(sending, topic, kind), topic, outcome, ahead=ahead))
        for cycle in range(cycles):
            began = time.monotonic()
            for stream in streams:
                stream.send(messages)
            time.sleep(random.random() * 0.3)  # anywhere in the stream
            _FAULT[fault](broker, proxy, admin, [stream.topic for stream in streams])
            _settle(admin, streams, cycle)
            if cycle % 10 == 9:
                holes = sum(stream.outcome.holes for stream in streams)
                say(f"{fault}: cycle {cycle + 1}, {time.monotonic() - began:.1f} s, {holes} holes so far")
        for stream in streams:
            stream.stop()
            stream.outcome.cycles = cycles
        return [stream.outcome for stream in streams]


def _settle(admin: PulsarAdmin, streams: list[_Stream], cycle: int) -> None:
    """Wait until every message was delivered and acknowledged, and note where that does not come true."""
    waiting = {stream.topic: stream for stream in streams}
    deadline = time.monotonic() + _CYCLE_SECONDS
    last: dict[str, str] = {}
    while waiting and time.monotonic() < deadline:
        time.sleep(0.2)
        for topic, stream in list(waiting.items()):
            left = _left(admin, topic)
            last[topic] = f"{stream.missing()} not delivered, {left}"
            if not stream.missing() and not left:
                del waiting[topic]
    for topic, stream in waiting.items():
        stream.outcome.holes += 1
        stream.outcome.notes.append(f"cycle {cycle}: {last[topic]}")


def _left(admin: PulsarAdmin, topic: str) -> str:
    """Say what of the topic is not acknowledged; empty if nothing."""
    try:
        stats = admin.stats(topic, precise_backlog=True)
        cursor = admin.internal_stats(topic).cursors[_SUBSCRIPTION]
    except (pulsar_ext.AdminError, KeyError) as error:
        return f"unknown: {error}"
    backlog = stats.subscriptions[_SUBSCRIPTION].backlog_entries
    holes = ", ".join(map(str, cursor.individually_deleted))
    return f"backlog {backlog} behind {cursor.mark_delete_position} [{holes}]" if backlog or holes else ""


def _kill(broker: PulsarProcess, _: FaultProxy, __: PulsarAdmin, ___: list[str]) -> None:
    broker.kill()
    broker.restart()


def _unload(_: PulsarProcess, __: FaultProxy, admin: PulsarAdmin, topics: list[str]) -> None:
    for topic in topics:
        admin.unload(topic)


def _cut(_: PulsarProcess, proxy: FaultProxy, __: PulsarAdmin, ___: list[str]) -> None:
    proxy.cut()


_FAULT: Final = {"kill": _kill, "unload": _unload, "cut": _cut}


# -- the application's crash -------------------------------------------------------------------------------------------


def run_crashes(cycles: int, messages: int = 40, say: Callable[[str], None] = print) -> list[Outcome]:
    """Kill consuming processes, by turns of every type and kind."""
    combinations = [(type_name, kind) for type_name in TYPES for kind in KINDS]
    with PulsarProcess("small-chunks", settings=_SETTINGS) as broker:
        client = official.Client(broker.service_url, logger=_quiet())
        subjects = {}
        for type_name, kind in combinations[: cycles if cycles < len(combinations) else None]:
            topic = f"crash-{type_name}-{kind}"
            with PulsarAdmin(broker.admin_url) as admin:
                admin.create_subscription(topic, _SUBSCRIPTION, "earliest")
            subjects[type_name, kind] = _Subject(topic, Outcome("crash", type_name, kind), _Sender(client, topic, kind))
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


class _Subject:
    """One subscription whose processes are killed, and what they told before."""

    def __init__(self, topic: str, outcome: Outcome, sender: _Sender) -> None:
        self.topic, self.outcome, self.sender = topic, outcome, sender
        self._delivered: Counter[int] = Counter()
        self._confirmed: set[int] = set()

    def crash(self, broker: PulsarProcess) -> None:
        """Run a process until it has confirmed k messages, and kill it somewhere in what follows."""
        self.outcome.cycles += 1
        count = random.randrange(1, 4 if self.outcome.kind == "chunked" else 30)  # no secret
        if self.outcome.kind == "batched":
            count = (count + _BATCH - 1) // _BATCH * _BATCH  # the cursor holds whole batches
        with self._process(broker, count) as process:
            for line in process.stdout:  # pyright: ignore[reportOptionalIterable]
                if self._told(line):
                    break
            time.sleep(random.random() * 0.15)
            process.kill()
            for line in process.stdout:  # pyright: ignore[reportOptionalIterable]
                self._told(line)

    def finish(self, broker: PulsarProcess, admin: PulsarAdmin) -> None:
        """Consume what is left, and count."""
        left = self.sender.sent - len(self._confirmed)
        with self._process(broker, left) as process:
            out, _ = process.communicate(timeout=120)
        for line in out.splitlines():
            self._told(line)
        outcome = self.outcome
        outcome.sent, outcome.delivered = self.sender.sent, len(self._delivered)
        outcome.lost = outcome.sent - outcome.delivered
        outcome.again = sum(self._delivered.values()) - outcome.delivered
        remains = _left(admin, self.topic)
        if remains:
            outcome.holes += 1
            outcome.notes.append(remains)

    def _process(self, broker: PulsarProcess, count: int) -> subprocess.Popen[str]:
        arguments = [broker.service_url, broker.admin_url, self.topic, self.outcome.type, self.outcome.kind, str(count)]
        return subprocess.Popen(  # this very program
            [sys.executable, __file__, "--child", *arguments], stdout=subprocess.PIPE, text=True
        )

    def _told(self, line: str) -> bool:
        word, _, rest = line.partition(" ")
        labels = [int(text) for text in rest.split()]
        if word == "got":
            self._delivered.update(labels)
            came_again = self._confirmed.intersection(labels)
            self.outcome.confirmed_again += len(came_again)
            if came_again:
                self.outcome.notes.append(f"confirmed, and delivered again: {sorted(came_again)[:5]}")
        elif word == "confirmed":
            self._confirmed.update(labels)
            return True
        return False


def child(arguments: list[str]) -> None:
    """Receive and acknowledge so many messages, confirm them, then go on without confirming until killed or idle."""
    service_url, admin_url, topic, type_name, kind, count = arguments
    client = pulsar_ext.Client(service_url, admin=admin_url, logger=_quiet())
    consumer = _subscribe(client, topic, kind, type_name)
    acknowledged: list[int] = []
    with contextlib.suppress(official.Timeout):
        for _ in range(int(count)):
            message = consumer.receive(3_000)
            label = _label(message.data())
            os.write(1, b"got %d\n" % label)
            consumer.acknowledge(message)
            acknowledged.append(label)
    consumer.flush_acks(confirm=True, timeout_ms=20_000)
    os.write(1, f"confirmed {' '.join(map(str, acknowledged))}\n".encode())
    with contextlib.suppress(official.Timeout):
        while True:
            message = consumer.receive(1_000)
            os.write(1, b"got %d\n" % _label(message.data()))
            consumer.acknowledge(message)
    client.close()


# -- the program -------------------------------------------------------------------------------------------------------


def table(outcomes: list[Outcome]) -> Iterator[str]:
    """Give the outcomes as a table in Markdown."""
    yield "| fault | subscription | messages | cycles | sent | lost | confirmed, again | holes | delivered again |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for one in outcomes:
        yield (
            f"| {one.fault} | {one.type} | {one.kind} | {one.cycles} | {one.sent} | {one.lost} | "
            f"{one.confirmed_again if one.fault == 'crash' else '-'} | {one.holes} | {one.again} |"
        )


def main() -> int:
    """Run what was asked for."""
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2:])
        return 0
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
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
    if arguments.as_json:
        print(json.dumps([asdict(one) for one in outcomes], indent=1))
    else:
        print(*table(outcomes), sep="\n")
        print(*(f"{one.fault} {one.type} {one.kind}: {note}" for one in outcomes for note in one.notes), sep="\n")
    return 1 if any(one.failed for one in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
