"""The writers of the soak: each uses successive producers, and sends numbers at a steady rate."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pulsar as official

import pulsar_ext

if TYPE_CHECKING:
    from soak_model import Flow
    from soak_rig import Rig

__all__ = ["Writer", "Writing", "content", "start_writer"]

_STEP_SECONDS: Final = 0.1
_FLUSH_STEPS: Final = 40


@dataclass(frozen=True)
class Writing:
    """A flow's way of writing.

    Args:
        per_second: the rate of messages.
        settings: of the producer.
        bytes: of each message, in addition to its number.
        keys: number of different keys; 0 for none.
        many: True if each step is one `send_many()`.
        lives: minimum and maximum life of a producer, in seconds.
    """

    per_second: float
    settings: dict[str, Any] = field(default_factory=dict)
    bytes: int = 0
    keys: int = 0
    many: bool = False
    lives: tuple[float, float] = (15.0, 60.0)


def content(number: int, size: int = 0) -> bytes:
    return b"%d " % number + b"x" * size


def start_writer(rig: Rig, client: Any, flow: Flow, writing: Writing) -> None:
    """Write until the run drains; then continue until every message has an outcome."""
    writer = Writer(rig, client, flow, writing)
    rig.keep_on(f"write {flow.name}", writer.session, rig.over)


class Writer:
    """Successive producers of a flow."""

    def __init__(self, rig: Rig, client: Any, flow: Flow, writing: Writing) -> None:
        self._rig, self._client, self._flow, self._writing = rig, client, flow, writing
        self._dice = rig.dice(f"write {flow.name}")
        self._due = 0.0

    def session(self) -> None:
        """Open a producer, send with it for a while, close it."""
        if self._rig.draining.is_set() and not self._flow.open:
            time.sleep(_STEP_SECONDS)
            return
        settings: dict[str, Any] = {"send_timeout_millis": 0, "block_if_queue_full": True, **self._writing.settings}
        if self._flow.once:
            settings |= {"producer_name": self._flow.name, "deduplication": True}
        producer = self._client.create_producer(self._flow.topic, **settings)
        try:
            self._send_again(producer)
            self._send_for(producer, self._dice.uniform(*self._writing.lives))
        finally:
            with contextlib.suppress(official.PulsarException):
                producer.close()
            self._rig.did["producers closed"] += 1

    def _send_again(self, producer: Any) -> None:
        """Resend what has no outcome: with deduplication what an earlier producer failed to send."""
        for number in sorted(self._flow.open):
            self._send(producer, number)
        producer.flush()

    def _send_for(self, producer: Any, seconds: float) -> None:
        ends, step = time.monotonic() + seconds, 0
        while time.monotonic() < ends and not self._rig.draining.is_set():
            self._due += self._writing.per_second * _STEP_SECONDS
            numbers = self._flow.begin(int(self._due))
            self._due -= len(numbers)
            if self._writing.many and numbers:
                self._send_many(producer, numbers)
            else:
                for number in numbers:
                    self._send(producer, number)
            step += 1
            if step % _FLUSH_STEPS == 0:
                producer.flush()
            time.sleep(_STEP_SECONDS)
        producer.flush()

    def _send(self, producer: Any, number: int) -> None:
        options: dict[str, Any] = {"sequence_id": number} if self._flow.once else {}
        if self._writing.keys:
            options["partition_key"] = f"key-{number % self._writing.keys}"

        def on_outcome(result: Any, _message_id: Any) -> None:
            if result == official.Result.Ok or result is pulsar_ext.DUPLICATE_MESSAGE:
                self._flow.confirm(number)
            else:
                self._failed(number, str(result))

        try:
            producer.send_async(content(number, self._writing.bytes), on_outcome, **options)
        except Exception as error:
            self._failed(number, type(error).__name__)
            raise

    def _send_many(self, producer: Any, numbers: range) -> None:
        try:
            producer.send_many([content(number, self._writing.bytes) for number in numbers])
        except Exception as error:
            for number in numbers:
                self._failed(number, type(error).__name__)
            raise
        for number in numbers:
            self._flow.confirm(number)

    def _failed(self, number: int, why: str) -> None:
        self._rig.errors[f"send: {why}"] += 1
        if not self._flow.once:  # with deduplication it is resent under its number
            self._flow.fail(number)
