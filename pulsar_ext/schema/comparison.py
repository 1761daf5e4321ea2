"""How a schema differs from the topic's, in words (pure)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from pulsar_ext.errors import InvalidUse

from .avro_definition import shape_of_definition
from .reading import differences

__all__ = ["SchemaText", "cannot_read", "explain"]

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


def _unreadable(written: SchemaText, read: SchemaText) -> tuple[str, ...]:
    try:
        return tuple(map(str, differences(_shape(written), _shape(read))))
    except (InvalidUse, ValueError):  # a JSON schema may be of another kind
        return ()


def _shape(text: SchemaText) -> Any:
    return shape_of_definition(json.loads(text.definition))
