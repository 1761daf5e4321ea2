"""Conversion of Python values to plain Avro (pure): dicts, lists, scalars, and pairs of a name and a value."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from .shapes import (
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


def types_of(shape: Shape) -> tuple[type[Any], ...]:
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


def branch_of(union: Union, value: Any) -> Shape:
    """Return the branch of a union for a value, by its class or its nearest base class."""
    for branch in union.branches:
        if type(value) in types_of(branch)[:1]:
            return branch
    for kind in type(value).__mro__:
        for branch in union.branches:
            if kind in types_of(branch):
                return branch
    raise InvalidValue(f"is {type(value).__name__} {value!r}, not one of {', '.join(map(name_of, union.branches))}")


def writer_of(shape: Shape, known: dict[int, Any] | None = None) -> Callable[[Any], Any]:
    """Return a function from a value of a shape to plain Avro; it raises `InvalidValue`."""
    return _WRITERS[type(shape)](shape, {} if known is None else known)


def _record_writer(record: Record, known: dict[int, Any]) -> Callable[[Any], Any]:
    if id(record) in known:
        return lambda value: known[id(record)](value)  # noqa: PLW0108  # the writer exists when this is called
    known[id(record)] = None
    kind = record.type
    fields = [(field.name, attrgetter(field.attribute), writer_of(field.shape, known)) for field in record.fields]

    def write(value: Any) -> Any:
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

    known[id(record)] = write
    return write


def _union_writer(union: Union, known: dict[int, Any]) -> Callable[[Any], Any]:
    made = {id(branch): (name_of(branch), writer_of(branch, known)) for branch in union.branches}
    by_type: dict[type[Any], tuple[str, Callable[[Any], Any]]] = {}

    def write(value: Any) -> Any:
        if value is None and union.is_nullable:
            return None
        found = by_type.get(type(value))
        if found is None:
            found = by_type[type(value)] = made[id(branch_of(union, value))]
        name, convert = found
        return name, convert(value)

    return write


def _array_writer(array: Array, known: dict[int, Any]) -> Callable[[Any], Any]:
    convert, types = writer_of(array.items, known), array.types

    def write(value: Any) -> Any:
        if not isinstance(value, types):
            raise InvalidValue(f"is {type(value).__name__} {value!r}, not a list")
        return convert_each(value, convert)

    return write


def convert_each(values: Iterable[Any], convert: Callable[[Any], Any]) -> list[Any]:
    """Return the converted values; `InvalidValue` states the index."""
    done: list[Any] = []
    for value in values:
        try:
            done.append(convert(value))
        except InvalidValue as error:
            raise error.within(f"[{len(done)}]") from None
    return done


def convert_items(
    values: dict[str, Any], convert: Callable[[Any], Any], key_of: Callable[[Any], str] = checked_text
) -> dict[str, Any]:
    """Return a mapping with converted keys and values; `InvalidValue` states the key."""
    done = {}
    for key, value in values.items():
        if not isinstance(key, str):
            raise InvalidValue(f"has the key {key!r}, not a str")
        try:
            done[key_of(key)] = convert(value)
        except InvalidValue as error:
            raise error.within(f"[{key!r}]") from None
    return done


def _map_writer(mapped: Mapped, known: dict[int, Any]) -> Callable[[Any], Any]:
    convert = writer_of(mapped.values, known)

    def write(value: Any) -> Any:
        if not isinstance(value, dict):
            raise InvalidValue(f"is {type(value).__name__} {value!r}, not a dict")
        return convert_items(value, convert)

    return write


def enumeration_writer(shape: Enumeration, _: Any = None) -> Callable[[Any], Any]:
    """Return a function from a member to its symbol."""
    kind, symbols = shape.type, shape.symbols

    def write(value: Any) -> Any:
        if not isinstance(value, kind) or value.name not in symbols:
            raise InvalidValue(f"is {type(value).__name__} {value!r}, not {kind.__name__}")
        return value.name

    return write


_WRITERS: Final[dict[type[Any], Callable[[Any, dict[int, Any]], Callable[[Any], Any]]]] = {
    Scalar: lambda scalar, _: to_plain(scalar),
    Fixed: lambda *_: to_plain(Scalar("bytes")),
    Record: _record_writer,
    Union: _union_writer,
    Array: _array_writer,
    Mapped: _map_writer,
    Enumeration: enumeration_writer,
}
