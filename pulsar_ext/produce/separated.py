"""The sender of a producer of keys and values whose keys are not in the payload: it makes the message's key of them.

Java's client writes such a key as base64, and says so. The C++ client cannot say so, but for messages of batches that
are written here.
"""

from __future__ import annotations

from itertools import tee
from typing import TYPE_CHECKING, Any

import pulsar

from pulsar_ext._native.signatures import shaped_like
from pulsar_ext._wire.batch_payload import Base64Key
from pulsar_ext.errors import InvalidUse

from .options import named_options, rows_of, stands_alone
from .wrapping import WrappingSender

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pulsar_ext._runtime.callbacks import SendCallback
    from pulsar_ext.ids.message_id import MessageId
    from pulsar_ext.schema.key_value import KeyValueSchema

    from .outcome import SentMany
    from .sender import Sender

__all__ = ["SeparatedSender", "batching_for_keys"]


def batching_for_keys(named: dict[str, Any]) -> dict[str, Any]:
    """Give the arguments of a producer with separated keys: it has batches, if need be of one key each.

    Raises:
        InvalidUse: it is to send in chunks.
    """
    if named["chunking_enabled"]:
        raise InvalidUse("Separated keys cannot be sent in chunks: use KeyValueEncoding.INLINE. Nothing was opened.")
    if named["batching_enabled"]:
        return named
    by_key = {"batching_type": pulsar.BatchingType.KeyBased, "batching_max_publish_delay_ms": 1}
    return {**named, "batching_enabled": True, "lazy_start_partitioned_producers": False, **by_key}


def _column(rows: Iterable[tuple[Any, dict[str, Any]]], name: str) -> Iterable[Any]:
    return (options[name] for _, options in rows)


class SeparatedSender(WrappingSender):
    """Gives messages their keys.

    Args:
        sender: sends them.
        schema: makes keys of values.
    """

    def __init__(self, sender: Sender, schema: KeyValueSchema[Any, Any]) -> None:
        super().__init__(sender)
        self._schema = schema

    @shaped_like(pulsar.Producer.send)
    def send(self, content: Any, *args: Any, **kwargs: Any) -> MessageId:
        """Send a message and wait for its outcome."""
        options = self._with_key(content, named_options(args, kwargs))
        return self._sender.send(_payload(content), **options)

    @shaped_like(pulsar.Producer.send_async)
    def send_async(self, content: Any, callback: SendCallback | None, *args: Any, **kwargs: Any) -> None:
        """Send a message and have `callback(result, message_id)` called once it is persisted or has failed."""
        options = self._with_key(content, named_options(args, kwargs))
        self._sender.send_async(_payload(content), callback, **options)

    def post(self, content: Any, callback: SendCallback, options: dict[str, Any], *, patient: bool = False) -> None:
        """Send one of many."""
        options = self._with_key(content, options)
        self._sender.post(_payload(content), callback, options, patient=patient)

    def send_many(self, contents: Iterable[Any], columns: dict[str, Iterable[Any]], *, flush: bool) -> SentMany:
        """Send many messages, and with `flush` wait until all of them are persisted."""
        names = (*columns, "partition_key")
        rows = tee(
            ((content, self._with_key(content, options)) for content, options in rows_of(contents, columns)),
            1 + len(names),
        )
        keyed = {name: _column(column, name) for name, column in zip(names, rows[1:], strict=True)}
        return self._sender.send_many((_payload(content) for content, _ in rows[0]), keyed, flush=flush)

    def _with_key(self, content: Any, options: dict[str, Any]) -> dict[str, Any]:
        if not isinstance(content, tuple) or len(content) != 2:  # noqa: PLR2004  # a key and a value
            raise InvalidUse(
                f"{content!r} is no key and value: give KeyValue(key, value), or KeyValue(key, None), which compaction "
                "takes for the end of the key. Nothing was sent."
            )
        if options.get("partition_key") is not None or stands_alone(options):
            raise InvalidUse(
                "A message with a separated key has no other partition_key, and is not delayed or replicated by itself."
            )
        return {**options, "partition_key": Base64Key.of(self._schema.key.encode(content[0]))}


def _payload(content: Any) -> Any:
    """Give what is sent of a key and a value: nothing if the value is None, as Java's client does."""
    return None if content[1] is None else content
