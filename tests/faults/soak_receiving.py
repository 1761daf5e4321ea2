"""The subscriptions of the soak: each way to receive, to acknowledge, to acknowledge negatively and to seek."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pulsar as official
from soak_rig import POISON, number_of

import pulsar_ext

if TYPE_CHECKING:
    from collections.abc import Iterator

    from soak_model import Flow, Taken
    from soak_rig import Rig

__all__ = ["Consumer", "Taking", "start_consumers", "start_reader"]

_WAIT_MILLIS: Final = 200
_MOST: Final = 50
_HISTORY: Final = 300
_CONFIRM_EVERY: Final = 100
_SEEK_SECONDS: Final = (8.0, 25.0)


class _FailedError(Exception):
    """The application's processing of some messages failed."""


@dataclass(frozen=True)
class Taking:
    """A subscription's way of consuming its flow.

    Args:
        name: of the subscription.
        type: of the subscription.
        by: `receive`, `for`, `receive_many` or `batch_receive`.
        acknowledge_by: `acknowledge`, `acknowledge_many`, `acknowledge_cumulative` or `ack_scope`.
        consumers: their number.
        options: of the consumer.
        nack: the share of messages that are negatively acknowledged.
        forget: the share that is neither acknowledged nor negatively acknowledged, until a timeout redelivers it.
        goes_back: True if it seeks back at times.
        is_reset: True if an operator resets its cursor at times.
        lives: minimum and maximum life of a consumer, in seconds.
    """

    name: str
    type: official.ConsumerType
    by: str = "receive"
    acknowledge_by: str = "acknowledge"
    consumers: int = 1
    options: dict[str, Any] = field(default_factory=dict)
    nack: float = 0.0
    forget: float = 0.0
    goes_back: bool = False
    is_reset: bool = False
    lives: tuple[float, float] = (20.0, 60.0)


def start_consumers(rig: Rig, client: Any, flow: Flow, taking: Taking) -> None:
    """Let the consumers of one subscription consume a flow until the run is over."""
    dead = None
    if "dead_letter_policy" in taking.options:
        dead = flow.subscription(f"{taking.name}: dead letters", lambda number: number % POISON == POISON - 1)
    taken = flow.subscription(taking.name)
    for index in range(taking.consumers):
        one = Consumer(rig, client, taken, taking, index)
        rig.keep_on(f"take {flow.name} {taking.name} {index}", one.session, rig.over)
    if dead is not None:
        topic = taking.options["dead_letter_policy"].dead_letter_topic
        letters = Consumer(rig, client, dead, Taking("dead", official.ConsumerType.Shared), 0, topic)
        rig.keep_on(f"take {topic}", letters.session, rig.over)


class Consumer:
    """Successive consumers of one subscription, one at a time."""

    def __init__(self, rig: Rig, client: Any, taken: Taken, taking: Taking, index: int, topic: str = "") -> None:
        self._rig, self._client, self._taken, self._taking = rig, client, taken, taking
        self._topic = topic or taken.flow.topic
        self._dice = rig.dice(f"{self._topic} {taking.name} {index}")
        self._poison = "dead_letter_policy" in taking.options
        self._history: deque[Any] = deque(maxlen=_HISTORY)
        self._acknowledge_by = {
            "acknowledge": self._acknowledge,
            "acknowledge_many": lambda consumer, messages: consumer.acknowledge_many(messages),
            "acknowledge_cumulative": lambda consumer, messages: consumer.acknowledge_cumulative(messages[-1]),
            "ack_scope": self._in_scope,
        }[taking.acknowledge_by]

    def session(self) -> None:
        """Subscribe, consume for a while, close."""
        consumer = self._client.subscribe(
            self._topic,
            self._taking.name,
            consumer_type=self._taking.type,
            initial_position=official.InitialPosition.Earliest,
            negative_ack_redelivery_delay_ms=1_000,
            **self._taking.options,
        )
        self._rig.consumers.add(consumer)
        try:
            self._take_for(consumer, self._dice.uniform(*self._taking.lives))
        finally:
            with contextlib.suppress(official.PulsarException):
                consumer.close()
            self._rig.did["consumers closed"] += 1

    def _take_for(self, consumer: Any, seconds: float) -> None:
        ends, turns = time.monotonic() + seconds, 0
        goes_back = time.monotonic() + self._dice.uniform(*_SEEK_SECONDS)
        while time.monotonic() < ends and not self._rig.over.is_set():
            for messages in self._take(consumer):
                self._acknowledge_all(consumer, messages)
            turns += 1
            if turns % _CONFIRM_EVERY == 0:
                consumer.flush_acks(confirm=self._dice.random() < 0.5)
                self._rig.did["flushes"] += 1
            if self._taking.is_reset and self._rig.reset.is_set():
                self._rig.reset.clear()
                self._reset()
            if self._taking.goes_back and time.monotonic() > goes_back and not self._rig.draining.is_set():
                goes_back = time.monotonic() + self._dice.uniform(*_SEEK_SECONDS)
                self._go_back(consumer)

    def _take(self, consumer: Any) -> Iterator[list[Any]]:
        """Yield received messages: a list, an empty list, or in a `for` loop a few lists of one."""
        if self._taking.by == "for":
            # When the run is over, another thread ends it by closing the consumer.
            for message in itertools.islice(consumer, self._dice.randrange(1, _MOST)):
                yield self._taken_over([message])
            return
        with contextlib.suppress(official.Timeout):
            if self._taking.by == "receive":
                messages = [consumer.receive(_WAIT_MILLIS)]
            elif self._taking.by == "receive_many":
                messages = consumer.receive_many(_MOST, _WAIT_MILLIS)
            else:
                messages = list(consumer.batch_receive())
            if messages:
                yield self._taken_over(messages)

    def _taken_over(self, messages: list[Any]) -> list[Any]:
        for message in messages:
            self._rig.taken(self._taken, message)
        self._history.extend(messages if self._taking.goes_back or self._taking.is_reset else ())
        return messages

    def _acknowledge_all(self, consumer: Any, messages: list[Any]) -> None:
        kept = []
        for message in messages:
            if self._poison and number_of(message) % POISON == POISON - 1:
                consumer.negative_acknowledge(message)
                continue
            rolled = self._dice.random()
            if rolled < self._taking.nack:
                consumer.negative_acknowledge(message)
            elif rolled >= self._taking.nack + self._taking.forget:
                kept.append(message)
        if kept:
            self._acknowledge_by(consumer, kept)

    def _acknowledge(self, consumer: Any, messages: list[Any]) -> None:
        self._dice.shuffle(messages)
        for message in messages:
            # By the message, or by its id as a database would have stored it.
            consumer.acknowledge(message if self._dice.random() < 0.9 else message.message_id())

    def _in_scope(self, consumer: Any, messages: list[Any]) -> None:
        confirm = self._dice.random() < 0.2
        with contextlib.suppress(_FailedError), consumer.ack_scope(messages, confirm=confirm):
            if self._dice.random() < 0.02:
                self._rig.did["scopes that failed"] += 1
                raise _FailedError

    def _go_back(self, consumer: Any) -> None:
        """Seek to an earlier message, by its id or its time: everything before it was delivered."""
        if len(self._history) < _HISTORY:
            return
        message = self._history[self._dice.randrange(_HISTORY)]
        self._history.clear()
        consumer.seek(message.message_id() if self._dice.random() < 0.7 else message.publish_timestamp())
        self._rig.did["seeks"] += 1

    def _reset(self) -> None:
        """Reset this subscription's cursor as an operator does, without the consumer."""
        if not self._history:
            return
        message_id = self._history[0].message_id()
        self._history.clear()
        position = pulsar_ext.Position(message_id.ledger_id(), message_id.entry_id())
        with pulsar_ext.PulsarAdmin(self._rig.admin_url) as admin:
            admin.reset_cursor(self._topic, self._taking.name, position)
        self._rig.did["resets"] += 1


def start_reader(rig: Rig, client: Any, flow: Flow) -> None:
    """Read a flow from its beginning, with successive readers."""
    taken = flow.subscription("reader")
    dice = rig.dice(f"read {flow.name}")
    start: Any = official.MessageId.earliest

    def session() -> None:
        nonlocal start
        reader = client.create_reader(flow.topic, start)
        try:
            ends = time.monotonic() + dice.uniform(20, 60)
            while time.monotonic() < ends and not rig.over.is_set():
                with contextlib.suppress(official.Timeout):
                    message = reader.read_next(_WAIT_MILLIS)
                    rig.taken(taken, message)
                    start = message.message_id()
        finally:
            with contextlib.suppress(official.PulsarException):
                reader.close()
            rig.did["readers closed"] += 1

    rig.keep_on(f"read {flow.name}", session, rig.over)
