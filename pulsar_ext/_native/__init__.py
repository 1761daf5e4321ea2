"""The only package that uses the official client's C++ objects, private attributes and threads.

It checks the installed official client, of any version, when it is imported. Names are looked up in the binding.
Private attributes are checked on official objects over a stub that records calls. A feature that needs more checks it
when it is first used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import _pulsar
import pulsar
import pulsar.asyncio
import pulsar.schema

from .c_api import TRIED

_NAMES: Final = {
    "Client": "close_async create_producer_async_v2 create_reader_async_v2 get_schema_info get_topic_partitions_async "
    "shutdown subscribe_async_v2",
    "Consumer": "acknowledge acknowledge_cumulative batch_receive close close_async consumer_name "
    "get_last_message_id_async is_connected negative_acknowledge pause_message_listener receive receive_async "
    "redeliver_unacknowledged_messages resume_message_listener seek_async subscription_name topic unsubscribe_async",
    "Error": "error message",
    "Message": "data event_timestamp has_null_value int_schema_version length message_id ordering_key partition_key "
    "producer_name properties publish_timestamp redelivery_count schema_version topic_name",
    "MessageBatch": "messages parse_from with_message_id",
    "MessageBuilder": "build content partition_key sequence_id set_null_value",
    "MessageId": "batch_index deserialize entry_id ledger_id partition serialize topic_name",
    "Producer": "close close_async flush_async is_connected last_sequence_id producer_name send_async topic",
    "Reader": "close close_async has_message_available_async is_connected read_next_async seek_async topic",
    "TopicRegex": "pattern",
}
"""Methods that are called, by C++ class."""
_SHOWN: Final = 3


def require() -> None:
    if lacks := lacking():
        more = f" and {len(lacks) - _SHOWN} more" if len(lacks) > _SHOWN else ""
        raise ImportError(
            f"pulsar_ext does not work with pulsar-client {pulsar.__version__}: {', '.join(lacks[:_SHOWN])}{more} "
            f"missing or different from {TRIED}: pip install pulsar-client=={TRIED}"
        )


def lacking() -> list[str]:
    """Return the names that the official client lacks, or else the names of failing checks."""
    missing = [
        f"{kind}.{name}"
        for kind, names in _NAMES.items()
        for name in names.split()
        if not hasattr(getattr(_pulsar, kind, None), name)
    ]
    return missing or [name for name, works in _checks() if not _passes(works)]


def _passes(works: Callable[[], bool]) -> bool:
    try:
        return works()
    except Exception:  # noqa: BLE001  # any exception: the check failed
        return False


class _Native:
    """Stub of a C++ object, and of a client that has one; records the calls of official methods."""

    def __init__(self) -> None:
        self.called: list[str] = []
        self._client = self
        self._consumers: list[object] = []

    def __getattr__(self, name: str) -> Callable[..., _Native]:
        def call(*_: object) -> _Native:
            self.called.append(name)
            return self

        return call


def _checks() -> Iterator[tuple[str, Callable[[], bool]]]:
    """Yield the name of each check and a function that returns true if it passes."""
    client = pulsar.Client
    yield "Client.create_producer()", lambda: _opens(client.create_producer, "create_producer", "_producer")
    yield "Client.subscribe()", lambda: _opens(client.subscribe, "subscribe", "_consumer", "subscription")
    earliest = pulsar.MessageId.earliest
    yield "Client.create_reader()", lambda: _opens(client.create_reader, "create_reader", "_reader", earliest)
    yield "Client.get_topic_partitions()", lambda: _calls(client.get_topic_partitions, "get_topic_partitions", "topic")
    yield "asyncio.Client", lambda: _calls(pulsar.asyncio.Client.shutdown, "shutdown")
    for kind, private in (("Producer", "_producer"), ("Consumer", "_consumer"), ("Reader", "_reader")):
        yield f"asyncio.{kind}", partial(_wraps, kind, private)
    yield "MessageId._msg_id", lambda: pulsar.MessageId(1, 2, 3, 4)._msg_id.entry_id() == 3  # noqa: PLR2004
    message, batch, schema = _pulsar.Message(), pulsar.MessageBatch(), pulsar.schema.BytesSchema()
    yield "Message._message", lambda: pulsar.Message._wrap(message)._message is message
    yield "MessageBatch._msg_batch", lambda: isinstance(batch._msg_batch, _pulsar.MessageBatch)
    yield "Producer._build_msg", lambda: _builds(schema)
    yield "Schema._schema_info", lambda: schema.schema_info() is schema._schema_info


def _opens(method: Callable[..., Any], call: str, private: str, *arguments: object) -> bool:
    """Return if a client's method makes one call, and the new object keeps the result in the expected attributes."""
    native = _Native()
    opened = method(native, "topic", *arguments)
    opened.topic()
    kept = [getattr(opened, name) for name in (private, "_client")]
    is_listed = native._consumers in ([], [opened])
    return is_listed and native.called == [call, "topic"] and kept == [native, native] and bool(opened._schema)


def _calls(method: Callable[..., object], call: str, *arguments: object) -> bool:
    native = _Native()
    method(native, *arguments)
    return native.called == [call]


def _wraps(kind: str, private: str) -> bool:
    native = _Native()
    made = getattr(pulsar.asyncio, kind)(native, None)
    made.topic()
    return native.called == ["topic"] and getattr(made, private) is native


def _builds(schema: pulsar.schema.Schema) -> bool:
    """Return if a producer without a C++ producer builds messages with and without a value."""
    producer = pulsar.Producer()
    producer._schema = schema
    rest = ({"a": "b"}, "key", None, None, None, False, None, None, None)
    one, none = (producer._build_msg(value, *rest) for value in (b"x", None))
    return (one.data(), one.partition_key(), one.properties()) == (b"x", "key", {"a": "b"}) and none.has_null_value()


require()
