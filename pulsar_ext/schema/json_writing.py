"""Python values of a shape to JSON that Java's client reads (pure).

Times are written in ISO 8601, which Jackson reads, bytes as base64, and decimals as text.
"""

from __future__ import annotations

import base64
import datetime as dt
import math
from typing import TYPE_CHECKING, Any, Final

from .json_unions import family_of, short_name
from .json_unions import wraps as is_wrapping
from .scalars import TEXT_BYTES, TEXT_OR_BASE64, NoText, Unfit, python_type, to_plain
from .shapes import Array, Enumeration, Fixed, Mapped, Record, Scalar, Shape, Union
from .values import branch_of, each_item, each_of, enumeration_writer

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["json_writer"]

_SPECIAL: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
"""As Jackson writes and reads them, which JSON has not."""


def json_writer(shape: Shape, known: dict[int, Any] | None = None) -> Callable[[Any], Any]:
    """Make what turns a value of a shape into what `json` writes; it raises `Unfit`."""
    return _WRITERS[type(shape)](shape, {} if known is None else known)


def _array_writer(array: Array, known: dict[int, Any]) -> Callable[[Any], Any]:
    convert, types = json_writer(array.items, known), array.types
    return lambda values: each_of(_checked(values, types), convert)


def _map_writer(mapped: Mapped, known: dict[int, Any]) -> Callable[[Any], Any]:
    convert = json_writer(mapped.values, known)
    return lambda values: each_item(_checked(values, (dict,)), convert)


def _checked(values: Any, types: tuple[type[Any], ...]) -> Any:
    if not isinstance(values, types):
        raise Unfit(f"is {type(values).__name__} {values!r}, not {types[0].__name__}")
    return values


def _record_writer(record: Record, known: dict[int, Any]) -> Callable[[Any], Any]:
    if id(record) in known:
        return lambda value: known[id(record)](value)  # noqa: PLW0108  # made when it is called
    known[id(record)] = None
    kind = record.type
    fields = [(one.name, one.attribute, json_writer(one.shape, known)) for one in record.fields]

    def write(value: Any) -> Any:
        _checked(value, (kind,))
        written = {}
        for name, attribute, convert in fields:
            try:
                written[name] = convert(getattr(value, attribute))
            except Unfit as error:
                raise error.within(f".{name}") from None
        return written

    known[id(record)] = write
    return write


def _union_writer(union: Union, known: dict[int, Any]) -> Callable[[Any], Any]:
    made = {id(branch): json_writer(branch, known) for branch in union.branches}
    families = {family_of(branch) for branch in union.branches}
    wraps = is_wrapping(union)

    def write(value: Any) -> Any:
        if value is None and union.is_nullable:
            return None
        branch = branch_of(union, value)
        written = made[id(branch)](value)
        if isinstance(value, float) and isinstance(written, str) and "text" in families:
            raise Unfit(f"is {value!r}, which is text in JSON, and would be read as another branch of the union")
        return {short_name(branch): written} if wraps and isinstance(branch, Record | Mapped) else written

    return write


def _scalar_writer(scalar: Scalar, _: Any) -> Callable[[Any], Any]:
    check, kind = to_plain(scalar), python_type(scalar)
    cut = "milliseconds" if (scalar.logical or "").endswith("-millis") else "auto"

    def text(value: Any) -> Any:
        check(value)
        if kind is dt.datetime:
            if value.tzinfo is None:
                return value.isoformat(timespec=cut)
            return value.astimezone(dt.UTC).replace(tzinfo=None).isoformat(timespec=cut) + "Z"
        return value.isoformat(timespec=cut) if kind is dt.time else str(value)

    def number(value: Any) -> Any:
        value = check(value)
        return value if math.isfinite(value) else _SPECIAL[str(value)]

    if scalar in (TEXT_BYTES, TEXT_OR_BASE64):
        return lambda value: _text_of(check(value))
    if kind is bytes:
        return lambda value: _base64(check(value))
    if kind is float:
        return number
    return check if kind in (bool, int, str, type(None)) else text


def _text_of(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise NoText(
            f"is {value[:20]!r}, which is no text, as the official Python client reads bytes in JSON"
        ) from None


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


_WRITERS: Final[dict[type[Any], Callable[[Any, dict[int, Any]], Callable[[Any], Any]]]] = {
    Scalar: _scalar_writer,
    Fixed: lambda *_: _base64,
    Record: _record_writer,
    Union: _union_writer,
    Array: _array_writer,
    Mapped: _map_writer,
    Enumeration: enumeration_writer,
}
