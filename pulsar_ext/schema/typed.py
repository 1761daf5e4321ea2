"""Base of this library's schemas: typed by its values, with a copy for each client."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Self

import pulsar.schema

from pulsar_ext._native.schemas import Encoded, SchemaInfo, SchemaText, SchemaType, text_of, without_writers
from pulsar_ext.errors import InvalidUse

from .reading import cannot_read

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from pulsar_ext.admin import PulsarAdmin

    T = TypeVar("T", default=Any)
    """The type of values; Any if it is omitted, as in `Consumer` without brackets."""

    Official = object  # the official classes are untyped, and would hide misspelt names
    OfficialAvro = object
    OfficialJson = object
    OfficialProtobuf = object

    class _Members(Generic[T]):  # of the official classes
        _record_cls: type[T]

        def encode(self, obj: T) -> bytes: ...
        def decode(self, data: bytes) -> T: ...
        def decode_message(self, msg: Encoded) -> T: ...
        def schema_info(self) -> SchemaInfo: ...
        def attach_client(self, client: object) -> None: ...

else:
    from typing import TypeVar

    T = TypeVar("T")
    _Members = Generic
    Official, OfficialProtobuf = pulsar.schema.Schema, pulsar.schema.ProtobufNativeSchema
    OfficialAvro, OfficialJson = pulsar.schema.AvroSchema, pulsar.schema.JsonSchema


def _no_admin_api() -> PulsarAdmin:
    raise InvalidUse("The schema belongs to no client: pass it as schema= to open a producer, consumer or reader.")


class TypedSchema(_Members[T]):
    """A schema whose values have one type; must precede the official class among the bases."""

    reads_null_values = False
    """Whether it decodes messages without a value itself; otherwise they are None."""
    is_compared = True
    """Whether topics are compared with this schema; otherwise the official client reads by its own rules."""

    _admin_api_: Callable[[], PulsarAdmin] = staticmethod(_no_admin_api)
    """Returns the client's admin API, in copies of a client that query it; another copy keeps no client alive."""

    def of_client(self, admin_api: Callable[[], PulsarAdmin]) -> Self:
        """Return a copy for one client, whose admin API `admin_api` returns, with its own knowledge of topics."""
        mine = copy.copy(self)
        mine.begin(admin_api)
        return mine

    def begin(self, admin_api: Callable[[], PulsarAdmin]) -> None:
        """Forget what is known of topics; a subclass that queries the admin API keeps it, and so the client."""

    def adapt_to_topic(self, topic_schema: Callable[[], SchemaText | None], /) -> None:
        """Adapt writing to the topic to open, whose last schema `topic_schema` queries, None if it has none."""

    def register(self, topic: str) -> None:
        """Upload the schema to a topic, if the C++ client cannot."""

    def cannot_read(self, _: str, topic_schema: Callable[[], SchemaText | None], /) -> tuple[str, ...]:
        """Return the differences that prevent this schema from reading a topic's last one; see `adapt_to_topic()`."""
        if not self.is_compared or (found := topic_schema()) is None:
            return ()
        return cannot_read(text_of(self.schema_info()), found)


class ByVersion(TypedSchema[T]):
    """A schema that reads each message by its schema version, and that the C++ client does not know."""

    reads_null_values = True
    _client: Any = None
    """Lookup of schema versions."""

    def begin(self, admin_api: Callable[[], PulsarAdmin]) -> None:
        """Forget the known versions."""
        self._admin_api_ = admin_api
        self._versions: dict[tuple[str, int], Any] = {}

    def schema_info(self) -> SchemaInfo:
        """Return an empty schema for the broker: the C++ client has none for such values."""
        return SchemaInfo(SchemaType.BYTES, "BYTES", "")


def of_another_cluster(schema: pulsar.schema.Schema, number: int) -> pulsar.schema.Schema:
    """Return a copy of a client's schema for messages of another cluster, which has other schema versions."""
    other = schema.of_client(schema._admin_api_) if isinstance(schema, TypedSchema) else without_writers(schema)
    if (versions := getattr(other, "_client", None)) is not None:
        other.attach_client(versions.at(number))
    return other
