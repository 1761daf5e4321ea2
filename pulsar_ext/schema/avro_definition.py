"""Avro definitions of shapes, and shapes of Avro definitions (pure)."""

from __future__ import annotations

import math
from enum import Enum
from typing import Any, Final

from pulsar_ext.errors import InvalidUse

from . import shapes
from .shapes import Complex, Definition

MARKED: Final = "value"
"""The field of a record as which a scalar is read."""


def marked_branches(union: shapes.Union) -> tuple[shapes.Shape, ...]:
    """Return the branches for reading: scalars with one Python type as records, whose branch fastavro reports."""
    kinds = [
        shapes.PYTHON_TYPES[branch.type] if isinstance(branch, shapes.Scalar) else None for branch in union.branches
    ]
    return tuple(
        shapes.Record(
            f"pulsar_ext.union_{branch.type}", dict, [shapes.Field(MARKED, MARKED, shapes.Scalar(branch.type))]
        )
        if isinstance(branch, shapes.Scalar) and kinds.count(shapes.PYTHON_TYPES[branch.type]) > 1
        else branch
        for branch in union.branches
    )


_JAVA_CLASSES: Final = ("java.math.BigDecimal",)


class Form(Enum):
    """The purpose of a definition."""

    WHOLE = "the topic"
    PLAIN = "writing plain values: without logical types and defaults, which do not determine the encoding"
    READ = "reading plain values, where each union value states its branch"


def definition_of(shape: shapes.Shape, form: Form = Form.WHOLE) -> Definition:
    """Return the Avro definition of a shape."""
    return _define(shape, set(), form)


def _define(shape: shapes.Shape, named: set[str], form: Form) -> Definition:
    match shape:
        case shapes.Scalar():
            return _logical_definition(shape) if form is Form.WHOLE and shape.logical is not None else shape.type
        case shapes.Array():
            return {"type": "array", "items": _define(shape.items, named, form)}
        case shapes.Mapped():
            return {"type": "map", "values": _define(shape.values, named, form)}
        case shapes.Union():
            branches = marked_branches(shape) if form is Form.READ else shape.branches
            return [_define(branch, named, form) for branch in branches]
    if shape.name in named:
        return shape.name
    named.add(shape.name)
    return _define_named(shape, named, form)


def _define_named(shape: shapes.Named, named: set[str], form: Form) -> dict[str, object]:
    space, _, name = shape.name.rpartition(".")
    begin = {"name": name} if not space else {"name": name, "namespace": space}
    match shape:
        case shapes.Fixed():
            logical = {} if shape.meaning is None or form is not Form.WHOLE else _logical_definition(shape.meaning)
            return {**logical, "type": "fixed", **begin, "size": shape.size}
        case shapes.Enumeration():
            default = {} if shape.default is None else {"default": shape.default}
            return {"type": "enum", **begin, "symbols": list(shape.symbols), **default}
    fields = []
    for field in shape.fields:
        defined: dict[str, object] = {"name": field.name, "type": _define(field.shape, named, form)}
        fields.append(defined)
        if form is Form.WHOLE:
            defined |= _aliases(field)
            if field.default is not None:
                defined["default"] = written_default(field.shape, field.default())
    return {"type": "record", **begin, **_aliases(shape), "fields": fields}


def _aliases(described: shapes.Field | shapes.Record) -> dict[str, object]:
    return {"aliases": list(described.aliases)} if described.aliases else {}


def _logical_definition(scalar: shapes.Scalar) -> dict[str, object]:
    if scalar.logical in _JAVA_CLASSES:
        return {"type": scalar.type, "java-class": scalar.logical}
    digits = {"precision": scalar.precision, "scale": scalar.scale} if scalar.logical == "decimal" else {}
    return {"type": scalar.type, "logicalType": scalar.logical, **digits}


def written_default(shape: shapes.Shape, value: object) -> object:
    """Return a default as Avro writes it: bytes as text, and a union value as its first branch."""
    return _default(shape, shapes.Writer().of(shape)(value))


class UnsupportedDefault(Exception):  # noqa: N818  # never leaves the package
    """The default cannot be in a definition."""


def _default(shape: shapes.Shape, plain: Any) -> object:
    match shape:
        case shapes.Union():
            first = shape.branches[0]
            if (plain[0] if isinstance(plain, tuple) else "null") != shapes.name_of(first):
                raise UnsupportedDefault
            return _default(first, plain[1] if isinstance(plain, tuple) else plain)
        case shapes.Array():
            return [_default(shape.items, item) for item in plain]
        case shapes.Mapped():
            return {key: _default(shape.values, item) for key, item in plain.items()}
        case shapes.Record():
            return {field.name: _default(field.shape, plain[field.name]) for field in shape.fields}
    if isinstance(plain, float) and not math.isfinite(plain):
        raise UnsupportedDefault
    return plain.decode("latin-1") if isinstance(plain, bytes) else plain


def shape_of_definition(definition: Definition) -> shapes.Shape:
    """Return the shape of an Avro definition; its values are dicts, lists and scalars."""
    try:
        return _shape(definition, "", {})
    except (KeyError, TypeError, AttributeError) as error:
        raise InvalidUse(f"The definition is not a valid Avro schema: {type(error).__name__}: {error}.") from None


def _shape(definition: Definition, space: str, known: dict[str, shapes.Shape]) -> shapes.Shape:  # noqa: PLR0911  # one for each type
    if isinstance(definition, list):
        return shapes.Union(tuple(_shape(branch, space, known) for branch in definition))
    if isinstance(definition, str):
        primitive = shapes.Scalar(definition) if definition in shapes.PYTHON_TYPES else None
        found = primitive or known.get(f"{space}.{definition}") or known.get(definition)
        if found is None:
            raise InvalidUse(f"The Avro type {definition!r} is undefined.")
        return found
    match kind := definition["type"]:
        case "array":
            return shapes.Array(_shape(definition["items"], space, known), list, (list,))
        case "map":
            return shapes.Mapped(_shape(definition["values"], space, known))
        case "fixed" | "enum" | "record":
            name = definition["name"]
            if "." not in name and (space := definition.get("namespace", space)):
                name = f"{space}.{name}"
            return _named(definition, name, known)
        case str() if kind in shapes.PYTHON_TYPES:
            java = definition.get("java-class")
            logical = definition.get("logicalType") or (java if java in _JAVA_CLASSES else None)
            return shapes.Scalar(kind, logical, definition.get("precision", 0), definition.get("scale", 0))
    return _shape(kind, space, known)


def _named(definition: Complex, name: str, known: dict[str, shapes.Shape]) -> shapes.Shape:
    if definition["type"] == "fixed":
        meaning = None
        if definition.get("logicalType") == "decimal":
            meaning = shapes.Scalar("bytes", "decimal", definition["precision"], definition.get("scale", 0))
        known[name] = shapes.Fixed(name, definition["size"], meaning)
        return known[name]
    if definition["type"] == "enum":
        symbols = {symbol: symbol for symbol in definition["symbols"]}
        known[name] = shapes.Enumeration(name, symbols, definition.get("default"), str)
        return known[name]
    record = known[name] = shapes.Record(name, dict, aliases=tuple(definition.get("aliases", ())))
    for field in definition["fields"]:
        default = shapes.constant(field["default"]) if "default" in field else None
        shape = _shape(field["type"], name.rpartition(".")[0], known)
        aliases = tuple(field.get("aliases", ()))
        record.fields.append(shapes.Field(field["name"], field["name"], shape, default, aliases, field["name"]))
    return record
