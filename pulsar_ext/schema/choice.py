"""The schema that an application means by `schema=`, and the version of a schema that wrote a message.

A version is looked up at the message's own cluster only.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pulsar.schema

from pulsar_ext._native.records import record_class_of
from pulsar_ext.errors import InvalidUse, SchemaMismatch
from pulsar_ext.ids.topic_name import TopicName

from .avro_schema import AvroSchema
from .json_schema import JsonSchema
from .models import is_model
from .typed import T, TypedSchema

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulsar_ext.admin import PulsarAdmin
    from pulsar_ext.admin import SchemaInfo as StoredSchema


if TYPE_CHECKING:
    _Official = object  # the official class has no types, and would go for any
else:
    _Official = pulsar.schema.ProtobufNativeSchema


class ProtobufNativeSchema(TypedSchema[T], _Official):
    """Values of a class that protobuf made; mirrors Java's `Schema.PROTOBUF_NATIVE`.

    Args:
        record_cls: the class.

    Raises:
        TypeError: it is no such class, as officially.
    """

    def __init__(self, record_cls: type[T]) -> None:
        official: Any = pulsar.schema.ProtobufNativeSchema
        official.__init__(self, record_cls)


Found = TypeVar("Found")


class VersionLookup:
    """The place where a schema object looks up versions; official ones take it for their C++ client.

    Args:
        ask: asks the C++ client for a version of a topic's schema.
        connected_to: returns the number of the cluster that the client is connected to.
        number: of the messages' cluster.
    """

    def __init__(self, ask: Callable[[str, int], Any], connected_to: Callable[[], int], number: int) -> None:
        self._ask, self._connected_to, self._number = ask, connected_to, number

    def at(self, number: int) -> VersionLookup:
        """Return the lookup for messages of another cluster."""
        return VersionLookup(self._ask, self._connected_to, number)

    def get_schema_info(self, topic: str, version: int) -> Any:
        """Return a version of a topic's schema, as the C++ client does.

        Raises:
            SchemaMismatch: the client is connected to another cluster, where that version is of another schema.
            pulsar.PulsarException: the broker cannot be asked now, or knows no such version.
        """
        return self._checked(partial(self._ask, topic, version), topic, version)

    def stored(self, admin_api: Callable[[], PulsarAdmin], topic: str, version: int) -> StoredSchema:
        """Return a version of a topic's schema, as the admin API does, which knows those of keys and values.

        Raises:
            SchemaMismatch: the client is connected to another cluster, where that version is of another schema.
            AdminRequired, AdminError: the version could not be asked for.
        """
        parent = str(TopicName.parse(topic).parent)
        return self._checked(lambda: admin_api().schema(parent, version), topic, version)

    def _checked(self, ask: Callable[[], Found], topic: str, version: int) -> Found:
        self._refuse_another(topic, version)
        found = ask()
        self._refuse_another(topic, version)  # it may have been the answer of another cluster
        return found

    def _refuse_another(self, topic: str, version: int) -> None:
        if self._connected_to() != self._number:
            raise SchemaMismatch(
                f"Version {version} of the schema of {topic} was not looked up before the client connected to another "
                "cluster, whose versions are others. The message was not decoded; data() has its bytes.",
                differences=(),
            )


_OFFICIAL: Final[dict[type[Any], type[Any]]] = {
    pulsar.schema.JsonSchema: JsonSchema,
    pulsar.schema.AvroSchema: AvroSchema,
}
"""What takes the place of an official schema of a `Record` class, which loses fields or cannot read its own values."""


def schema_of(given: Any, admin_api: Callable[[], PulsarAdmin], *, reads: bool) -> Any:
    """Give the schema object of one producer, consumer or reader.

    Args:
        given: a schema object; or a class: `bytes`, `str`, one that protobuf made, or a dataclass or a pydantic model,
            which is Avro.
        admin_api: gives the client's admin API.
        reads: whether it is a consumer or a reader.

    Raises:
        InvalidUse: it is a class that there is no schema of, or the model has a field that Avro has not, or an official
            `Record` class loses fields.
    """
    if isinstance(given, type):
        given = schema_of_class(given)
    elif (
        type(given) in _OFFICIAL and (record := record_class_of(given)) is not None
    ):  # as of `from pulsar.schema import *`
        given = _OFFICIAL[type(given)](record)
    return given.of_client(admin_api, reads=reads) if isinstance(given, TypedSchema) else given


def with_schema(given: Any, named: dict[str, Any]) -> dict[str, Any]:
    """Give arguments by name with the schema among them, if there is one: it may be given by its place as well."""
    return named if given is None else {**named, "schema": given}


def schema_of_class(kind: type[Any]) -> Any:
    """Give the schema object of a class of values.

    Raises:
        InvalidUse: there is none, or the model has a field that Avro has not.
    """
    if kind is bytes:
        return pulsar.schema.BytesSchema()
    if kind is str:
        return pulsar.schema.StringSchema()
    if is_model(kind) or issubclass(kind, pulsar.schema.Record):
        return AvroSchema(kind)
    if hasattr(kind, "DESCRIPTOR") and hasattr(kind, "FromString"):
        return ProtobufNativeSchema(kind)
    raise InvalidUse(
        f"There is no schema of {kind.__name__}: give a dataclass, a pydantic model, a protobuf message, str or bytes, "
        "or a schema object. Nothing was opened."
    )
