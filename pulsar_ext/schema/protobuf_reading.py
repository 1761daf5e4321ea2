"""Protobuf messages whose class the application does not have, read by what their topic's schema says of them."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["fields_reader"]


def fields_reader(definition: dict[str, Any]) -> Callable[[bytes], dict[str, Any]]:
    """Make what reads the fields of a message by name.

    Args:
        definition: as Java's `ProtobufNativeSchemaData` has it: the files, and the name of the message.
    """
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # type: ignore[import-untyped]  # noqa: PLC0415

    files: Any = descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(definition["fileDescriptorSet"]))
    pool = descriptor_pool.DescriptorPool()
    for one in files.file:
        pool.Add(one)
    kind: Any = message_factory.GetMessageClass(pool.FindMessageTypeByName(definition["rootMessageTypeName"]))
    return lambda data: _fields_of(kind.FromString(data))


def _fields_of(message: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            found[field.name] = {key: _plain(one) for key, one in value.items()}
        elif hasattr(value, "append") or hasattr(value, "add"):
            found[field.name] = [_plain(one) for one in value]
        elif field.has_presence and not message.HasField(field.name):
            found[field.name] = None
        else:
            found[field.name] = _plain(value)
    return found


def _plain(value: Any) -> Any:
    return _fields_of(value) if hasattr(value, "DESCRIPTOR") else value
