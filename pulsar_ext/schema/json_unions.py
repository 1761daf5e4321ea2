"""Unions in JSON, which does not say what a value is of: what can be told apart, and how (pure)."""

from __future__ import annotations

import decimal
from typing import Any, Final

from pulsar_ext.errors import InvalidUse

from .scalars import python_type
from .shapes import Array, Mapped, Record, Scalar, Shape, Union, name_of

__all__ = ["check_json_unions", "family_of", "has_tags", "json_family", "short_name", "tags_of", "wraps"]

_FAMILIES: Final[dict[type[Any], str]] = {
    type(None): "null",
    bool: "boolean",
    int: "number",
    float: "fraction",
    list: "array",
    dict: "object",
    decimal.Decimal: "fraction",
}
"""What a Python type is in JSON; text otherwise."""


def json_family(value: Any) -> str:
    """Give what a value is that `json` has read, with fractions as `Decimal`."""
    return _FAMILIES.get(type(value), "text")


def family_of(shape: Shape) -> str:
    """Give what the values of a shape are written as."""
    if isinstance(shape, Record | Mapped):
        return "object"
    if isinstance(shape, Array):
        return "array"
    kind = python_type(shape) if isinstance(shape, Scalar) else str
    return "text" if kind is decimal.Decimal else _FAMILIES.get(kind, "text")


def wraps(union: Union) -> bool:
    """Whether an object of a union is written as Avro's JSON has it, `{"Name": {…}}`: there are several."""
    return sum(isinstance(one, Record | Mapped) for one in union.branches) > 1


def short_name(shape: Shape) -> str:
    """Give the name that such an object has."""
    return name_of(shape).rpartition(".")[2]


def tags_of(record: Record) -> dict[str, tuple[str, ...]]:
    """Return the fields that are a `Literal`, with the texts that each may have: pydantic's discriminators are."""
    return {one.name: one.shape.texts for one in record.fields if isinstance(one.shape, Scalar) and one.shape.texts}


def has_tags(value: dict[str, Any], tags: dict[str, tuple[str, ...]]) -> bool:
    """Return whether an object has all of these fields, and there is one, each with one of its texts."""
    return bool(tags) and all(value.get(name) in texts for name, texts in tags.items())


def check_json_unions(shape: Shape) -> None:
    """Refuse unions whose branches are the same in JSON, such as a time and text.

    Raises:
        InvalidUse: there is one.
    """
    _check(shape, "", set())


def _check(shape: Shape, path: str, seen: set[int]) -> None:
    match shape:
        case Union():
            families = [family_of(one) for one in shape.branches]
            twice = {one for one in families if families.count(one) > 1} - {"object"}
            if twice:
                both = [name_of(one) for one in shape.branches if family_of(one) in twice]
                raise InvalidUse(f"{path} is {' or '.join(both)}, which look alike in JSON. Nothing was opened.")
            for one in shape.branches:
                _check(one, path, seen)
        case Array():
            _check(shape.items, path, seen)
        case Mapped():
            _check(shape.values, path, seen)
        case Record() if id(shape) not in seen:
            seen.add(id(shape))
            for field in shape.fields:
                _check(field.shape, f"{path or shape.type.__name__}.{field.name}", seen)
