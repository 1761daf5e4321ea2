"""Conversion of Python values to plain Avro (pure): dicts, lists, scalars, and pairs of a name and a value."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from .shapes import (
    PLAIN_BYTES,
    Array,
    Enumeration,
    Fixed,
    InvalidValue,
    Mapped,
    Record,
    Scalar,
    Shape,
    Union,
    checked_text,
    name_of,
    python_type,
    to_plain,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from enum import Enum

    from .shapes import Convert


def types_of(shape: Shape) -> tuple[type[object], ...]:
    """Return the Python types of a shape's values."""
    match shape:
        case Scalar():
            return (python_type(shape), int) if shape.type in ("float", "double") else (python_type(shape),)
        case Array():
            return shape.types
        case Mapped() | Fixed():
            return (dict if isinstance(shape, Mapped) else bytes,)
        case Union():
            return tuple(kind for branch in shape.branches for kind in types_of(branch))
    return (shape.type,)


def branch_of(union: Union, value: object) -> Shape:
    """Return the branch of a union for a value, by its class or its nearest base class."""
    for branch in union.branches:
        if type(value) in types_of(branch)[:1]:
            return branch
    for kind in type(value).__mro__:
        for branch in union.branches:
            if kind in types_of(branch):
                return branch
    raise InvalidValue(f"is {type(value).__name__} {value!r}, not one of {', '.join(map(name_of, union.branches))}")


class Writer:
    """Maker of functions from values of a shape to plain Avro; they raise `InvalidValue`."""

    def __init__(self) -> None:
        self._records: dict[int, Convert] = {}

    def of(self, shape: Shape) -> Convert:  # noqa: PLR0911  # one for each shape
        """Return the function for a shape."""
        match shape:
            case Record():
                return self._record(shape)
            case Union():
                return self._union(shape)
            case Array():
                return self._array(self.of(shape.items), shape.types)
            case Mapped():
                return self._mapped(self.of(shape.values))
            case Enumeration():
                return _enumeration_writer(shape)
            case Fixed():
                return self._scalar(PLAIN_BYTES)
        return self._scalar(shape)

    def _scalar(self, scalar: Scalar) -> Convert:
        return to_plain(scalar)

    def _array(self, convert: Convert, types: tuple[type[Iterable[object]], ...]) -> Convert:
        def write(value: object) -> list[object]:
            if not isinstance(value, types):
                raise InvalidValue(f"is {type(value).__name__} {value!r}, not a list")
            return convert_each(value, convert)

        return write

    def _mapped(self, convert: Convert) -> Convert:
        def write(value: object) -> dict[str, object]:
            if not isinstance(value, dict):
                raise InvalidValue(f"is {type(value).__name__} {value!r}, not a dict")
            return convert_items(value, convert)

        return write

    def _union(self, union: Union) -> Convert:
        made = {id(branch): (name_of(branch), self.of(branch)) for branch in union.branches}
        by_type: dict[type[object], tuple[str, Convert]] = {}

        def write(value: object) -> tuple[str, object] | None:
            if value is None and union.is_nullable:
                return None
            found = by_type.get(type(value))
            if found is None:
                found = by_type[type(value)] = made[id(branch_of(union, value))]
            name, convert = found
            return name, convert(value)

        return write

    def _record(self, record: Record) -> Convert:
        if id(record) in self._records:
            return self._records[id(record)]
        kind = record.type
        fields: list[tuple[str, attrgetter[object], Convert]] = []  # filled below: a record may contain itself

        def write(value: object) -> dict[str, object]:
            if not isinstance(value, kind):
                raise InvalidValue(f"is {type(value).__name__} {value!r}, not {kind.__name__}")
            try:
                return {name: convert(get(value)) for name, get, convert in fields}
            except InvalidValue:
                for name, get, convert in fields:  # again, to find the position of the error
                    try:
                        convert(get(value))
                    except InvalidValue as error:
                        raise error.within(f".{name}") from None
                raise

        self._records[id(record)] = write
        fields += [(field.name, attrgetter(field.attribute), self.of(field.shape)) for field in record.fields]
        return write


def convert_each(values: Iterable[object], convert: Convert) -> list[object]:
    """Return the converted values; `InvalidValue` states the index."""
    done: list[object] = []
    for value in values:
        try:
            done.append(convert(value))
        except InvalidValue as error:
            raise error.within(f"[{len(done)}]") from None
    return done


def convert_items(
    values: dict[object, object], convert: Convert, key_of: Callable[[object], str] = checked_text
) -> dict[str, object]:
    """Return a mapping with converted keys and values; `InvalidValue` states the key."""
    done: dict[str, object] = {}
    for key, value in values.items():
        if not isinstance(key, str):
            raise InvalidValue(f"has the key {key!r}, not a str")
        try:
            done[key_of(key)] = convert(value)
        except InvalidValue as error:
            raise error.within(f"[{key!r}]") from None
    return done


def _enumeration_writer(shape: Enumeration) -> Convert:
    kind, symbols = shape.type, shape.symbols

    def write(value: Enum) -> object:
        if not isinstance(value, kind) or value.name not in symbols:
            raise InvalidValue(f"is {type(value).__name__} {value!r}, not {kind.__name__}")
        return value.name

    return write
