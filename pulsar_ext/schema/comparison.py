"""How a schema differs from the topic's, in words (pure)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pulsar_ext.errors import InvalidUse

from .avro_definition import shape_of_definition
from .reading import differences
from .scalars import PLAIN_BYTES, TEXT_BYTES, TEXT_OR_BASE64

if TYPE_CHECKING:
    from .shapes import Scalar

__all__ = ["SchemaText", "bytes_on", "cannot_read", "explain"]

_AVRO: Final = ("AVRO", "JSON")
"""Types whose definitions are Avro's."""


@dataclass(frozen=True, slots=True)
class SchemaText:
    """A schema as the broker has it: the name of its type, and its definition as text."""

    type: str
    definition: str


def cannot_read(ours: SchemaText, topics: SchemaText) -> tuple[str, ...]:
    """Give what keeps our schema from reading what the topic's wrote; nothing if it can, or that is not known."""
    if ours.type != topics.type:
        return (f"the topic has a schema of type {topics.type}, this one is {ours.type}",)
    if ours.type not in _AVRO:
        return ()
    return _unreadable(topics, ours)


def explain(ours: SchemaText, topics: SchemaText) -> tuple[str, ...]:
    """Give what may have kept a broker from taking our schema for a topic, by whatever strategy."""
    found = cannot_read(ours, topics)
    if ours.type != topics.type or ours.type not in _AVRO:
        return found
    others = _unreadable(ours, topics)
    return (*(f"reading the topic's: {one}" for one in found), *(f"for the topic's readers: {one}" for one in others))


def bytes_on(topics: SchemaText | None) -> Scalar:
    """Return what bytes are in the JSON of a topic.

    The official Python client writes text, and its definitions have no default for what may be null, or write it before
    the type. Java's and this library's have one behind it.

    Args:
        topics: its last schema; None if it has none.
    """
    if topics is None:
        return TEXT_OR_BASE64
    found = json.loads(topics.definition) if topics.type == "JSON" else None
    return next((one for one in (TEXT_BYTES, TEXT_OR_BASE64) if _says(one, found)), PLAIN_BYTES)


def _says(bytes_as: Scalar, found: Any) -> bool:
    if isinstance(found, list):
        return any(_says(bytes_as, one) for one in found)
    if not isinstance(found, dict):
        return False
    fields = found.get("fields", ())
    nullable = [[*one] for one in fields if isinstance(one["type"], list) and "null" in one["type"]]
    has_defaults = any("default" in one and one.index("default") > one.index("type") for one in nullable)
    if found.get("logicalType") == bytes_as.logical or (bytes_as is TEXT_BYTES and nullable and not has_defaults):
        return True
    inside = [found.get("items"), found.get("values"), found.get("type"), *(one["type"] for one in fields)]
    return any(_says(bytes_as, one) for one in inside)


def _unreadable(written: SchemaText, read: SchemaText) -> tuple[str, ...]:
    try:
        return tuple(map(str, differences(_shape(written), _shape(read))))
    except (InvalidUse, ValueError):  # a JSON schema may be of another kind
        return ()


def _shape(text: SchemaText) -> Any:
    return shape_of_definition(json.loads(text.definition))
