"""What producers that cut their own batches share: their settings, and how outcomes are told."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pulsar

from ._official import deserialize_inner, raise_result
from ._wire import decode, encode
from .batches import Bounds
from .callbacks import DUPLICATE_MESSAGE, GUARDING, SendCallback
from .errors import DuplicateMessage
from .message_id import MessageId, ids_in_batch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .client import Client

__all__ = [
    "Place",
    "Settings",
    "Waiter",
    "call_back",
    "deliver_each",
    "duplicate_message",
    "in_partition",
    "key_of",
    "named_options",
    "stands_alone",
]

_OK = pulsar.Result.Ok
_OPTIONS = (
    "properties",
    "partition_key",
    "ordering_key",
    "sequence_id",
    "replication_clusters",
    "disable_replication",
    "event_timestamp",
    "deliver_at",
    "deliver_after",
)
"""The official arguments of a send behind its content and its callback, in their order."""

_log = logging.getLogger("pulsar_ext")


Place = tuple[int, int, int] | MessageId
"""Ledger, entry and partition of a batch; or the id of an entry that is no batch."""

_PLAIN = {"partition_key": str, "ordering_key": str, "sequence_id": int, "event_timestamp": int}
_MAX_NUMBER = (1 << 63) - 1


class Settings:
    """What a producer that cuts its own batches needs to know of the arguments it was created with."""

    def __init__(self, named: dict[str, Any], *, limit: int | None = None) -> None:
        batched = named["batching_enabled"]
        self.batched: bool = batched
        self.bounds = Bounds(
            named["batching_max_messages"] if batched else 1, named["batching_max_allowed_size_in_bytes"]
        )
        self.delay = named["batching_max_publish_delay_ms"] / 1000
        self.by_key: bool = batched and named["batching_type"] == pulsar.BatchingType.KeyBased
        self.limit: int = named["max_pending_messages"] if limit is None else limit
        self.blocks: bool = named["block_if_queue_full"]
        self.partition = -1

    @staticmethod
    def takes(options: dict[str, Any]) -> bool:
        """Whether the arguments of a send are of the plain types that need no check by the official client."""
        for name, value in options.items():
            if value is None:
                continue
            if name == "properties":
                if type(value) is not dict or not all(type(k) is str and type(v) is str for k, v in value.items()):
                    return False
            elif type(value) is not _PLAIN.get(name) or (type(value) is int and not 0 <= value <= _MAX_NUMBER):
                return False
        return True


class Counter:
    """The sequence ids of a producer without deduplication; an explicit one moves the automatic ones behind it."""

    __slots__ = ("last", "steady")

    def __init__(self, last: int) -> None:
        self.last = last
        self.steady = True


def duplicate_message(sequence_id: int | None) -> DuplicateMessage:
    """Make the error of a message that the topic holds already."""
    return DuplicateMessage(
        "The topic holds this message already: one of its producer name with its sequence id, or a higher one, "
        "is persisted. Nothing is lost; its message id is not known.",
        sequence_id=sequence_id,
    )


class Waiter:
    """The callback of a synchronous send."""

    __slots__ = ("_told", "message_id", "result")

    def __init__(self) -> None:
        self._told = threading.Event()
        self.result: Any = None
        self.message_id: MessageId | None = None

    def __call__(self, result: Any, message_id: MessageId) -> None:
        """Hear the outcome."""
        self.result, self.message_id = result, message_id
        self._told.set()

    def wait(self, sequence_id: int | None) -> MessageId:
        """Wait for the outcome, and give the id or raise the error.

        Raises:
            DuplicateMessage: the topic holds the message already.
            pulsar.PulsarException: the official error of the outcome.
        """
        self._told.wait()
        if self.result is DUPLICATE_MESSAGE:
            raise duplicate_message(sequence_id)
        if self.result != _OK:
            raise_result(self.result)
        assert self.message_id is not None  # noqa: S101  # told with the result
        return self.message_id


def deliver_each(
    callbacks: Iterable[SendCallback | None],
    result: Any,
    place: Place | None,
    size: int,
    _client: Client | None,
) -> None:
    """Call the callbacks of a batch. What one raises is logged, and the next one is called."""
    if isinstance(place, tuple):
        for callback, message_id in zip(callbacks, ids_in_batch(place, size), strict=True):
            if callback is not None:
                try:
                    callback(result, message_id)
                except BaseException:  # noqa: BLE001  # nothing may reach the C++ client
                    _log.exception("A send callback raised; the result of its message was %s", result)
        return
    message_id = place if isinstance(place, MessageId) else MessageId()
    for callback in callbacks:
        if callback is not None:
            call_back(callback, result, message_id, _client)


def call_back(callback: SendCallback, result: Any, message_id: MessageId, _client: Client | None) -> None:
    """Call a callback; what it raises is logged. By the name `_client` the guard against waiting in it knows."""
    try:
        callback(result, message_id)
    except BaseException:  # noqa: BLE001  # nothing may reach the C++ client
        _log.exception("A send callback raised; the result of its message was %s", result)


def named_options(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Give the official arguments of a send by their names."""
    if not args:
        return kwargs
    if len(args) > len(_OPTIONS):
        raise TypeError(f"send takes at most {len(_OPTIONS)} arguments behind its content, not {len(args)}")
    named = dict(zip(_OPTIONS, args, strict=False))
    if twice := named.keys() & kwargs.keys():
        raise TypeError(f"send got several values for {', '.join(sorted(twice))}")
    return named | kwargs


def in_partition(inner: Any, partition: int) -> Any:
    """Give a C++ id the partition that its producer, which knows one topic only, leaves out."""
    found = decode(inner.serialize())
    first = None if found.first_chunk is None else replace(found.first_chunk, partition=partition)
    return deserialize_inner(encode(replace(found, partition=partition, first_chunk=first)))


def stands_alone(options: dict[str, Any]) -> bool:
    """Whether a message goes as an entry of its own: a delayed one, and one whose replication is its own."""
    return bool(
        options.get("deliver_at")
        or options.get("deliver_after")
        or options.get("replication_clusters")
        or options.get("disable_replication")
    )


def key_of(options: dict[str, Any]) -> str:
    """Give what batches by key go by."""
    ordering: str | None = options.get("ordering_key")
    return ordering if ordering is not None else options.get("partition_key") or ""


GUARDING.update({deliver_each.__code__, call_back.__code__})
