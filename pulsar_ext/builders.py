"""`client.new_reader()` and `client.new_consumer()`: the way that the Java API has taught to ask for key ranges.

    client.new_reader().topic(t).start_message_id(id).key_hash_range(KeyHashRange(0, 10000)).create()

Mirrors Java's `ReaderBuilder` and `ConsumerBuilder`. Every method gives the builder back; nothing is opened, and
nothing is validated that needs a broker, before the last one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from .errors import InvalidUse
from .range_reader import as_ranges

if TYPE_CHECKING:
    from collections.abc import Callable

    from .client import Client
    from .key_forms import KeyFormsMode
    from .keys import KeyHashRange, KeyHashRanges
    from .reader import Reader

__all__ = ["ReaderBuilder"]


class ReaderBuilder:
    """Builds a reader; made by `Client.new_reader()`.

    Args:
        client: opens the reader.
        schema: of its messages; bytes by default.
    """

    def __init__(self, client: Client, schema: Any = None) -> None:
        self._client = client
        self._options: dict[str, Any] = {} if schema is None else {"schema": schema}

    def topic(self, topic: str) -> Self:
        """Set the topic, with or without partitions; it must exist if the reader has key ranges."""
        return self.load_conf(topic=topic)

    def start_message_id(self, start_message_id: Any) -> Self:
        """Set where to start: any message id, `MessageId.earliest` or `MessageId.latest`."""
        return self.load_conf(start_message_id=start_message_id)

    def start_message_id_inclusive(self) -> Self:
        """Read the message of the start id too."""
        return self.load_conf(start_message_id_inclusive=True)

    def key_hash_range(self, *ranges: KeyHashRange | tuple[int, int] | str) -> Self:
        """Read only the messages whose key slots are in these ranges, each by its own key.

        Raises:
            InvalidKeyHashRange: there is none, one is not valid, or two overlap.
        """
        found: KeyHashRanges = as_ranges(ranges)
        return self.load_conf(key_hash_ranges=found)

    def key_forms(self, mode: KeyFormsMode) -> Self:
        """Set how to tell a key sent as bytes from base64 text, and an empty key from none; see `KeyForms`."""
        return self.load_conf(key_forms=mode)

    def reader_name(self, name: str) -> Self:
        """Set the reader's name."""
        return self.load_conf(reader_name=name)

    def reader_listener(self, listener: Callable[[Any, Any], object]) -> Self:
        """Have each message handed to a listener, which gets the reader and the message."""
        return self.load_conf(reader_listener=listener)

    def receiver_queue_size(self, size: int) -> Self:
        """Set how many messages wait in the client."""
        return self.load_conf(receiver_queue_size=size)

    def read_compacted(self, read_compacted: bool = True) -> Self:
        """Read the topic as compacted, the last message of each key."""
        return self.load_conf(is_read_compacted=read_compacted)

    def load_conf(self, **options: Any) -> Self:
        """Set any arguments of `Client.create_reader` by name."""
        self._options.update(options)
        return self

    def create(self) -> Reader:
        """Open the reader.

        Raises:
            InvalidUse: the topic or the start is missing; nothing was opened.
            NoSuchTopic: the reader has key ranges and there is no such topic; nothing was opened.
        """
        for name in ("topic", "start_message_id"):
            if name not in self._options:
                raise InvalidUse(f"{name} must be set on the reader builder: call .{name}(…) before .create().")
        return self._client.create_reader(**self._options)
