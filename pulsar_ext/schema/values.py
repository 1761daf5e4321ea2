"""Python values of a shape to what plain Avro has (pure): dicts, lists, scalars, and pairs of a name and a value."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from .shapes import (
    Array,
    Enumeration,
    Fixed,
    Mapped,
    Record,
    Scalar,
    Shape,
    Unfit,
    Union,
    checked_text,
    name_of,
    python_type,
    to_plain,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def types_of(shape: Shape) -> tuple[type[Any], ...]:
    """Give the Python types of a shape's values."""
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
    """Give the branch of a union that a value is of: by its own class, or else by the nearest that it is one of.

    Raises:
        Unfit: it is of none.
    """
    for branch in union.branches:
        if type(value) in types_of(branch)[:1]:
            return branch
    for kind in type(value).__mro__:
        for branch in union.branches:
            if kind in types_of(branch):
                return branch
    raise Unfit(f"is {type(value).__name__} {value!r}, which is none of {', '.join(map(name_of, union.branches))}")


def writer_of(shape: Shape, known: dict[int, Any] | None = None) -> Callable[[Any], Any]:
    """Make what turns a value of a shape into what plain Avro has for it; it raises `Unfit`."""
    return _WRITERS[type(shape)](shape, {} if known is None else known)


def _record_writer(record: Record, known: dict[int, Any]) -> Callable[[Any], Any]:
    if id(record) in known:
        return lambda value: known[id(record)](value)  # noqa: PLW0108  # made when it is called
    known[id(record)] = None
    kind = record.type
    fields = [(one.name, attrgetter(one.attribute), writer_of(one.shape, known)) for one in record.fields]

    def write(value: Any) -> Any:
        if not isinstance(value, kind):
            raise Unfit(f"is {type(value).__name__} {value!r}, not {kind.__name__}")
        try:
            return {name: convert(get(value)) for name, get, convert in fields}
        except Unfit:
            for name, get, convert in fields:  # once more, to find out where it is
                try:
                    convert(get(value))
                except Unfit as error:
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
            raise Unfit(f"is {type(value).__name__} {value!r}, not a list")
        return each_of(value, convert)

    return write


def each_of(values: Iterable[Any], convert: Callable[[Any], Any]) -> list[Any]:
    """Convert each of several values; `Unfit` says which one it is."""
    done: list[Any] = []
    for value in values:
        try:
            done.append(convert(value))
        except Unfit as error:
            raise error.within(f"[{len(done)}]") from None
    return done


def each_item(
    values: dict[str, Any], convert: Callable[[Any], Any], key_of: Callable[[Any], str] = checked_text
) -> dict[str, Any]:
    """Convert each value of a mapping, and each key; `Unfit` says which one it is."""
    done = {}
    for key, value in values.items():
        if not isinstance(key, str):
            raise Unfit(f"has the key {key!r}, which is no str")
        try:
            done[key_of(key)] = convert(value)
        except Unfit as error:
            raise error.within(f"[{key!r}]") from None
    return done


def _map_writer(mapped: Mapped, known: dict[int, Any]) -> Callable[[Any], Any]:
    convert = writer_of(mapped.values, known)

    def write(value: Any) -> Any:
        if not isinstance(value, dict):
            raise Unfit(f"is {type(value).__name__} {value!r}, not a dict")
        return each_item(value, convert)

    return write


def enumeration_writer(shape: Enumeration, _: Any = None) -> Callable[[Any], Any]:
    """Make what turns a member into its symbol."""
    kind, symbols = shape.type, shape.symbols

    def write(value: Any) -> Any:
        if not isinstance(value, kind) or value.name not in symbols:
            raise Unfit(f"is {type(value).__name__} {value!r}, not {kind.__name__}")
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
