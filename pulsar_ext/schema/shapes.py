"""Shapes: what a type is on the wire, and what is made of it in Python (pure data).

A shape comes from a model (`models.py`) or an Avro definition (`avro_definition.py`). Everything else walks shapes:
the definition that the topic gets, values to bytes, and what another version of the schema wrote to values.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["Array", "Enumeration", "Field", "Fixed", "Mapped", "Named", "Record", "Scalar", "Shape", "Union", "name_of"]


@dataclass(frozen=True, slots=True)
class Scalar:
    """A primitive Avro type.

    Args:
        type: its name.
        logical: its logical type, or the Java class that text is of.
        precision: of a `decimal`.
        scale: of a `decimal`.
        texts: the only ones that it may be; empty for any.
    """

    type: str
    logical: str | None = None
    precision: int = 0
    scale: int = 0
    texts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Fixed:
    """So many bytes; `meaning` is the scalar that they are, of a `decimal`."""

    name: str
    size: int
    meaning: Scalar | None = None


@dataclass(frozen=True, slots=True)
class Enumeration:
    """An enumeration: the Python value of each symbol, and the symbol that unknown ones are read as."""

    name: str
    symbols: Mapping[str, Any]
    default: str | None
    type: type[Any]


@dataclass(frozen=True, slots=True)
class Array:
    """A sequence; `make` makes the Python one of an iterable, `types` are the Python types that are written as one."""

    items: Shape
    make: Callable[[Any], Any]
    types: tuple[type[Any], ...]


@dataclass(frozen=True, slots=True)
class Mapped:
    """A mapping of text to values."""

    values: Shape


@dataclass(frozen=True, slots=True)
class Union:
    """One of several shapes."""

    branches: tuple[Shape, ...]

    @property
    def is_nullable(self) -> bool:
        """Whether null is one of them."""
        return Scalar("null") in self.branches


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a record.

    Args:
        name: on the wire.
        attribute: of the Python object.
        shape: of its values.
        default: gives the value of a field that is missing; None if it must not be missing.
        aliases: older names.
        parameter: what the Python class takes it as.
    """

    name: str
    attribute: str
    shape: Shape
    default: Callable[[], Any] | None = None
    aliases: tuple[str, ...] = ()
    parameter: str = ""


@dataclass(eq=False, slots=True)
class Record:
    """A record; it may contain itself, so its fields are added when there is one.

    Args:
        name: its full name on the wire.
        type: the Python class.
        fields: in their order.
        aliases: older names.
    """

    name: str
    type: type[Any]
    fields: list[Field] = field(default_factory=list)
    aliases: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Record({self.name!r}, {[one.name for one in self.fields]})"


Named: TypeAlias = Record | Enumeration | Fixed
Shape: TypeAlias = Scalar | Fixed | Enumeration | Array | Mapped | Union | Record


def name_of(shape: Shape) -> str:
    """Give what Avro calls a shape as a branch of a union."""
    match shape:
        case Scalar(type):
            return type
        case Array():
            return "array"
        case Mapped():
            return "map"
        case Union():
            return "union"
    return shape.name
