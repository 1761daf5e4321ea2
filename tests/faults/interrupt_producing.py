"""Interrupted sends: each message has one outcome, unless its call raised, and is persisted at most once."""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import pulsar as official
from interrupt_health import Elsewhere
from interrupt_rig import Rig

import pulsar_ext

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["ClosingProducer", "Sending"]

_BATCHED: Final = {"batching_enabled": True, "batching_max_messages": 3, "batching_max_publish_delay_ms": 5}
OPTIONS: Final[dict[str, dict[str, Any]]] = {
    "direct": {},
    "chunking": {"chunking_enabled": True},
    "batched": _BATCHED,
    "partitioned": _BATCHED,
    "deduplicated": {**_BATCHED, "deduplication": True},
    "deduplicated in chunks": {"chunking_enabled": True, "deduplication": True},
}
_BIG = 7_000_000
"""Payload size in bytes that makes two chunks."""


class Sending(Rig):
    """Sends by one of the producer's methods, between two messages that must succeed.

    The variant is the kind of producer, and after a slash the method and the special features of the call.
    """

    def __init__(self, world: Any, variant: str = "") -> None:
        super().__init__(world, variant)
        self._kind, self._how = variant.split("/")
        self._point = 0
        self._names: Counter[str] = Counter()
        self._made = 0

    def open(self) -> None:
        super().open()
        self.topic = self.world.topic(partitions=3 if self._kind == "partitioned" else 0)
        self.reader = self.world.feeding.create_reader(self.topic, official.MessageId.earliest)
        self.elsewhere = Elsewhere()
        self.good: set[str] = set()
        self.waiting: list[tuple[str, bool]] = []
        self.open_handle()

    def open_handle(self) -> None:
        """Open a producer."""
        options = dict(OPTIONS[self._kind])
        if options.get("deduplication"):
            self._made += 1
            options["producer_name"] = f"producer-{id(self)}-{self._made}"
        self.handle = self._sending = self.client.create_producer(self.topic, **options)

    @property
    def is_closed(self) -> bool:
        """True if the producer is closed, by itself or with its client."""
        return self.client.is_closed or self.handle.sender.closed

    def begin(self) -> None:
        if self.client.is_closed:
            self.client = self.world.client()
        if self.handle.sender.closed or self.handle._client is not self.client:
            self.open_handle()
        self._point += 1
        self.name = f"{self._point}"
        self._send(f"{self.name}a")

    def _send(self, name: str) -> None:
        self.handle.send_async(name.encode(), self.outcomes.callback(name))
        self.waiting.append((name, True))

    def call(self) -> Any:
        name = f"{self.name}b"
        how, content = self._how, name.encode()
        if how == "send":
            return self.handle.send(content)
        if how == "send_async":
            self.handle.send_async(content, self.outcomes.callback(name))
        elif how == "send_async with options":
            self.handle.send_async(content, self.outcomes.callback(name), partition_key="k", properties={"a": "b"})
        elif how == "send_async big":
            self.handle.send_async(content.ljust(_BIG), self.outcomes.callback(name))
        elif how == "send_many":
            return self.handle.send_many([content, f"{self.name}b2".encode(), f"{self.name}b3".encode()])
        elif how == "flush":
            self.handle.flush()
        else:
            getattr(self.handle, how)()
        return True

    def ended(self, came: Any, error: BaseException | None) -> Iterator[str]:
        self.interrupted = error is not None
        if self._how.startswith("send_async"):
            self.waiting.append((f"{self.name}b", error is None))
        elif self._how.startswith("send") and came:
            self.good.update([f"{self.name}b"] if self._how == "send" else [f"{self.name}b{n}" for n in ("", 2, 3)])
        if not self.is_closed:
            self._send(f"{self.name}c")
            problem, _ = self.elsewhere.call("flush()", self.handle.flush, 12)
            if problem and "raised" not in problem:
                yield problem
            problem, _ = self.elsewhere.call("send()", lambda: self.handle.send(f"{self.name}d".encode()), 12)
            if problem:
                yield problem
        yield from self._account()

    def _account(self) -> Iterator[str]:
        for name, surely in self.waiting:
            results = self.outcomes.of.pop(name, [])
            if len(results) > 1 or (surely and not results):
                yield f"message {name} has {len(results)} outcomes"
            if results == [official.Result.Ok]:
                self.good.add(name)
            elif results and not (self.is_closed and (self.interrupted or not name.endswith("a"))):
                yield f"message {name} has the outcome {results}"
        self.waiting.clear()

    def check_later(self) -> Iterator[str]:
        if not self.is_closed:
            self.handle.flush()
            yield from self.handler_outcomes()
        while self.reader.has_message_available():
            self._names[self.reader.read_next(3000).data().rstrip().decode()] += 1
        if twice := [name for name, count in self._names.items() if count > 1]:
            yield f"{len(twice)} messages are persisted twice: {twice[:3]}"
        if missing := self.good - self._names.keys():
            yield f"{len(missing)} messages were reported as persisted, and are missing: {sorted(missing)[:3]}"
        self.good.clear()
        self._handler_sent.clear()

    def close_handle(self) -> None:
        self.handle.close()

    def end(self) -> None:
        self.reader.close()
        super().end()


class ClosingProducer(Sending):
    """`close()`: earlier messages are persisted, and closing again does nothing."""

    cost = 3

    def call(self) -> Any:
        if self._how == "with":
            with self.handle:
                pass
        else:
            self.handle.close()
        return True

    def ended(self, came: Any, error: BaseException | None) -> Iterator[str]:
        self.interrupted = error is not None
        if not self.client.is_closed:
            with contextlib.suppress(pulsar_ext.AlreadyClosed):
                self.handle.close()
        yield from self._account()
