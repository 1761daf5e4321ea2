"""A run's topic, messages and consumer, and the record of each message."""

from __future__ import annotations

import contextlib
import random
import re
import sys
import threading
import time
import traceback
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pulsar as official
from acks_common import SUBSCRIPTION, TYPES, label_of, producer_options, quiet
from pairs_operations import KILL

import pulsar_ext
from pulsar_ext import MessageId, PulsarAdmin
from pulsar_ext.testing import FaultProxy

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CHUNK_BYTES", "SHAPES", "Case", "Rig"]

SHAPES: Final = ("plain", "batched", "chunked", "partitioned", "pattern")
CHUNK_BYTES: Final = 20_480
"""The broker's maximum message size."""
_BATCH: Final = 5
_NAMESPACE: Final = "persistent://public/default"
_FORGOTTEN: Final = 0.1
"""Share of the messages that their receiver never acknowledges."""


@dataclass(frozen=True)
class Case:
    """A run."""

    seed: int
    shape: str
    type: str
    first: str
    second: str

    @property
    def operations(self) -> tuple[str, str]:
        """Return both operations."""
        return self.first, self.second


@dataclass
class Record:
    """Record of the messages, by number; times are those of `time.monotonic()`."""

    received: dict[int, list[float]] = field(default_factory=dict)
    acknowledged: dict[int, float] = field(default_factory=dict)
    may_be_skipped: set[int] = field(default_factory=set)
    """Messages that a seek forward or a cumulative acknowledgement may have skipped."""
    moves: list[tuple[float, set[int]]] = field(default_factory=list)
    """Times of the application's moves of the cursor, and the messages after each."""
    skipped: int = 0
    """Number of further messages that may be missing, because they were skipped."""


class Rig:
    """A topic, a consumer of it, and a thread that receives and acknowledges.

    Args:
        case: the run.
        urls: the service URL and the admin URL of the broker.
    """

    def __init__(self, case: Case, urls: tuple[str, str]) -> None:
        self.case, self._urls = case, urls
        self.dice = random.Random(case.seed)
        self.record = Record()
        self.lock = threading.Lock()
        self.problems: list[str] = []
        self.held: list[Any] = []
        """Received and not yet acknowledged, on any thread."""
        self.ids: dict[int, Any] = {}
        self.topics: list[str] = []
        self.half_millis = 0
        """Publish time before which exactly the first half was sent."""
        self.sent = 0
        self.ended = threading.Event()
        """Set if the consumer or its client was closed, or it was unsubscribed."""
        self.forgets = True
        self._stop = threading.Event()
        self._stack = contextlib.ExitStack()
        self.base = f"{_NAMESPACE}/pairs-{case.seed}-{time.time_ns() % 10**9}"

    # -- beginning and end -------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Create the topic, send the first messages, and begin to receive."""
        self.admin = self._stack.enter_context(PulsarAdmin(self._urls[1]))
        self.proxy = self._stack.enter_context(FaultProxy.to(self._urls[0]))
        self._sending = pulsar_ext.Client(self._urls[0], admin=self._urls[1], logger=quiet())
        self._stack.callback(self._sending.close)
        self._make_topics()
        count = self.dice.randint(4, 8) if self.case.shape == "chunked" else self.dice.randint(20, 60)
        self.send(count // 2)
        time.sleep(0.005)
        self.half_millis, self.half = int(time.time() * 1000), self.sent
        time.sleep(0.005)
        self.send(count - count // 2)
        self.client = self.connect(self.proxy.service_url)
        self.consumer = self.subscribe(self.client)
        self._thread = threading.Thread(target=self._consume, daemon=True, name=f"consume {self.case.seed}")
        self._thread.start()

    def connect(self, service_url: str | None = None) -> Any:
        """Open a client of the broker."""
        seconds = 60 if KILL in self.case.operations else 15  # at least the start of a broker
        return pulsar_ext.Client(
            service_url or self._urls[0], admin=self._urls[1], logger=quiet(), operation_timeout_seconds=seconds
        )

    def close(self) -> None:
        """Close everything."""
        self._stop.set()
        with contextlib.suppress(Exception):
            self.client.close()
        self._stack.close()

    def _make_topics(self) -> None:
        shape = self.case.shape
        if shape == "partitioned":
            self.admin.create_partitioned_topic(self.base, 2)
            self.topics = [f"{self.base}-partition-{number}" for number in range(2)]
        elif shape == "pattern":
            self.topics = [f"{self.base}-{letter}" for letter in "ab"]
        else:
            self.topics = [self.base]
        batch = _BATCH if shape in ("batched", "partitioned") else 0
        options = producer_options(batch=batch, chunked=shape == "chunked")
        self._producers = [self._sending.create_producer(topic, **options) for topic in self.topics]

    def send(self, count: int) -> None:
        """Send `count` more messages, and return when they are persisted."""
        size = CHUNK_BYTES * 2 + 1000 if self.case.shape == "chunked" else 0
        for _ in range(count):
            number = self.sent
            producer = self._producers[self.topic_of(number)]
            text = (b"%d." % number).ljust(size, b"x")
            producer.send_async(
                text,
                lambda _, message_id, number=number: self.ids.update({number: message_id}),
                partition_key=f"k{number % 5}",
            )
            self.sent += 1
        for producer in self._producers:
            producer.flush()

    def _persisted(self, number: int, _: Any, message_id: Any) -> None:
        self.ids[number] = message_id

    def topic_of(self, number: int) -> int:
        """Return the index of a message's topic."""
        return number // _BATCH % len(self.topics)

    def subscribe(self, client: Any) -> Any:
        """Subscribe, with the run's subscription type."""
        topic: Any = self.base
        if self.case.shape == "pattern":
            topic = f"{self.base}-.*"
        options: dict[str, Any] = {}
        if self.case.shape == "pattern":
            topic, options["pattern_auto_discovery_period"] = re.compile(topic), 1
        return client.subscribe(
            topic,
            SUBSCRIPTION,
            consumer_type=TYPES[self.case.type],
            initial_position=official.InitialPosition.Earliest,
            receiver_queue_size=self.dice.choice((5, 1000)),
            negative_ack_redelivery_delay_ms=200,
            start_message_id_inclusive=True,
            **options,
        )

    # -- receiving ---------------------------------------------------------------------------------------------------

    def receive(self, consumer: Any, dice: random.Random) -> list[Any]:
        """Receive in one of the consumer's ways, and record the messages."""
        how = dice.choice(("receive", "many", "batch"))
        if how == "receive":
            try:
                messages = [consumer.receive(100)]
            except official.Timeout:
                messages = []
        else:
            messages = consumer.receive_many(7, 100) if how == "many" else consumer.batch_receive()
        with self.lock:
            for message in messages:
                number = label_of(message.data())
                self.record.received.setdefault(number, []).append(time.monotonic())
                self.ids[number] = message.message_id()  # has its topic
        return messages

    def acknowledge(self, consumer: Any, message: Any) -> None:
        """Acknowledge a message, and record it."""
        now = time.monotonic()  # before the call: a concurrent move of the cursor may be after it
        consumer.acknowledge(message)
        with self.lock:
            self.record.acknowledged[label_of(message.data())] = now

    def take_held(self) -> Any:
        """Return a message that was received and not acknowledged; or None."""
        with self.lock:
            return self.held.pop(self.dice.randrange(len(self.held))) if self.held else None

    def _consume(self) -> None:
        dice = random.Random(self.case.seed + 1)
        try:
            while not self._stop.is_set():
                messages = self.receive(self.consumer, dice)
                for message in messages:
                    if self.forgets and dice.random() < _FORGOTTEN:
                        with self.lock:
                            self.held.append(message)
                    else:
                        self.acknowledge(self.consumer, message)
                time.sleep(dice.random() * 0.01)
        except pulsar_ext.AlreadyClosed as error:
            if not self.ended.is_set() and not self._stop.is_set():
                self.problems.append(f"the receiving thread got an error while the consumer was open: {error}")
        except BaseException as error:  # noqa: BLE001  # a finding
            self.problems.append(f"the receiving thread ended: {describe(error)}")

    def stop(self, seconds: float = 20) -> None:
        """Stop receiving."""
        self._stop.set()
        self._thread.join(seconds)
        if self._thread.is_alive():
            self.problems.append(f"the receiving thread hangs: {stack_of(self._thread)}")

    def wait(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait for a condition, or the end of the receiving thread; return the condition."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline or not self._thread.is_alive():
                return condition()
            time.sleep(0.02)
        return True

    def drain(self, consumer: Any, seconds: float, is_enough: Callable[[], bool]) -> None:
        """Receive and acknowledge messages until it is enough."""
        dice, deadline = random.Random(self.case.seed + 2), time.monotonic() + seconds
        while not is_enough() and time.monotonic() < deadline:
            for message in self.receive(consumer, dice):
                self.acknowledge(consumer, message)

    def move_to(self, come: set[int], move: Callable[[], Any]) -> None:
        """Move the cursor, after which some messages are delivered, received before or not."""
        began = time.monotonic()
        move()
        with self.lock:
            self.record.moves.append((began, come))

    def id_of(self, number: int) -> MessageId:
        """Return the id of a sent message."""
        return self.ids[number]


def describe(error: BaseException) -> str:
    """Describe an exception, and where in the library it was raised."""
    frames = [one for one in traceback.extract_tb(error.__traceback__) if "pulsar_ext" in one.filename]
    where = "".join(f" < {'/'.join(one.filename.split('/')[-2:])}:{one.lineno}" for one in reversed(frames[-4:]))
    return f"{type(error).__name__}: {str(error)[:160]}{where}"


def stack_of(thread: threading.Thread) -> str:
    """Return the stack of a thread."""
    frame = sys._current_frames().get(thread.ident or 0)
    frames = traceback.extract_stack(frame) if frame is not None else []
    return " > ".join(f"{'/'.join(one.filename.split('/')[-2:])}:{one.lineno} {one.name}" for one in frames[-6:])
