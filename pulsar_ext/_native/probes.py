"""What everything here needs of the official client, tried out when `_native` is imported, whatever its version.

Names are looked up in the binding. Private attributes are tried on official objects over what only notes what is called
of it. What a single feature needs beyond that is proved by the feature, when it is first used.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import _pulsar
import pulsar
import pulsar.asyncio
import pulsar.schema

from .c_api import TRIED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["lacking", "require"]

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
"""What is called of each C++ class."""
_SHOWN: Final = 3


def require() -> None:
    """Try out what everything here needs.

    Raises:
        ImportError: the installed official client lacks some of it.
    """
    if lacks := lacking():
        more = f" and {len(lacks) - _SHOWN} more" if len(lacks) > _SHOWN else ""
        raise ImportError(
            f"pulsar_ext does not work with pulsar-client {pulsar.__version__}: {', '.join(lacks[:_SHOWN])}{more} "
            f"cannot be used as with {TRIED}, which works: pip install pulsar-client=={TRIED}"
        )


def lacking() -> list[str]:
    """Return the names that the installed official client lacks; if it has all, what does not work as it is used."""
    missing = [
        f"{kind}.{name}"
        for kind, names in _NAMES.items()
        for name in names.split()
        if not hasattr(getattr(_pulsar, kind, None), name)
    ]
    return missing or [name for name, works in _attempts() if not _holds(works)]


def _holds(works: Callable[[], bool]) -> bool:
    try:
        return works()
    except Exception:  # noqa: BLE001  # whatever it is, it does not work
        return False


class _Native:
    """Stands where official methods expect a C++ object, or a client that has one; notes what they call."""

    def __init__(self) -> None:
        self.called: list[str] = []
        self._client = self
        self._consumers: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        def call(*_: object) -> _Native:
            self.called.append(name)
            return self

        return call


def _attempts() -> Iterator[tuple[str, Callable[[], bool]]]:
    """Yield what is tried, and what returns if it works."""
    client = pulsar.Client
    yield "Client.create_producer()", lambda: _opens(client.create_producer, "create_producer", "_producer")
    yield "Client.subscribe()", lambda: _opens(client.subscribe, "subscribe", "_consumer", "subscription")
    earliest = pulsar.MessageId.earliest
    yield "Client.create_reader()", lambda: _opens(client.create_reader, "create_reader", "_reader", earliest)
    yield "Client.get_topic_partitions()", lambda: _asks(client.get_topic_partitions, "get_topic_partitions", "topic")
    yield "asyncio.Client", lambda: _asks(pulsar.asyncio.Client.shutdown, "shutdown")
    for kind, private in (("Producer", "_producer"), ("Consumer", "_consumer"), ("Reader", "_reader")):
        yield f"asyncio.{kind}", partial(_stands_on, kind, private)
    yield "MessageId._msg_id", lambda: pulsar.MessageId(1, 2, 3, 4)._msg_id.entry_id() == 3  # noqa: PLR2004
    message, batch, schema = _pulsar.Message(), pulsar.MessageBatch(), pulsar.schema.BytesSchema()
    yield "Message._message", lambda: pulsar.Message._wrap(message)._message is message
    yield "MessageBatch._msg_batch", lambda: isinstance(batch._msg_batch, _pulsar.MessageBatch)
    yield "Producer._build_msg", lambda: _builds(schema)
    yield "Schema._schema_info", lambda: schema.schema_info() is schema._schema_info


def _opens(method: Callable[..., Any], call: str, private: str, *arguments: Any) -> bool:
    """Return if a client's method makes one call, and its object keeps what that returns where it is looked for."""
    native = _Native()
    opened = method(native, "topic", *arguments)
    opened.topic()
    kept = [getattr(opened, name) for name in (private, "_client")]
    is_listed = native._consumers in ([], [opened])
    return is_listed and native.called == [call, "topic"] and kept == [native, native] and bool(opened._schema)


def _asks(method: Callable[..., Any], call: str, *arguments: Any) -> bool:
    native = _Native()
    method(native, *arguments)
    return native.called == [call]


def _stands_on(kind: str, private: str) -> bool:
    native = _Native()
    made = getattr(pulsar.asyncio, kind)(native, None)
    made.topic()
    return native.called == ["topic"] and getattr(made, private) is native


def _builds(schema: Any) -> bool:
    """Return if a producer without a C++ one builds messages, with a value and without."""
    producer: Any = pulsar.Producer()
    producer._schema = schema
    rest = ({"a": "b"}, "key", None, None, None, False, None, None, None)
    one, none = (producer._build_msg(value, *rest) for value in (b"x", None))
    return (one.data(), one.partition_key(), one.properties()) == (b"x", "key", {"a": "b"}) and none.has_null_value()
