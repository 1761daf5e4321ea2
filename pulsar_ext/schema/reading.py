"""Reading of values of one schema version as another: Avro's schema resolution, and its obstacles as text (pure).

One walk over two shapes yields both the conversion and the differences. Mirrors Avro's `SchemaCompatibility` and
`ResolvingDecoder`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from operator import itemgetter
from typing import Final

from pulsar_ext._native.schemas import SchemaText
from pulsar_ext.errors import InvalidUse

from . import shapes
from .avro_definition import MARKED, marked_branches, shape_of_definition
from .shapes import Convert, Named


def reading_of(written: shapes.Shape, read: shapes.Shape) -> tuple[Convert, tuple[str, ...]]:
    """Return the conversion of plain Avro to the shape that is read, and the differences, at which it raises."""
    walk = _Walk()
    convert = walk.convert(written, read, shapes.short_name(read))
    return convert or (lambda value: value), tuple(walk.differences)


def differences(written: shapes.Shape, read: shapes.Shape) -> tuple[str, ...]:
    """Return the parts of one shape that cannot be read as another, such as `Order.items[].price: …`."""
    return reading_of(written, read)[1]


class _Walk:
    """A walk over two shapes; a converter of None means that the plain Avro value is used as it is."""

    def __init__(self) -> None:
        self.differences: list[str] = []
        self._made: dict[tuple[int, int], Convert] = {}

    def convert(self, written: shapes.Shape, read: shapes.Shape, path: str) -> Convert | None:  # noqa: PLR0911  # one for each shape
        if isinstance(written, shapes.Union):
            return self._of_union(written, read, path)
        if isinstance(read, shapes.Union):
            return self._as_branch(written, read, path)
        if _matches(written, read):
            match written, read:
                case shapes.Scalar(), shapes.Scalar():
                    return shapes.from_plain(read, written, path)
                case shapes.Fixed(meaning=meaning), shapes.Fixed() | shapes.Scalar():
                    to = read if isinstance(read, shapes.Scalar) else meaning
                    return None if to is None or meaning is None else shapes.from_plain(to, meaning, path)
                case shapes.Array(), shapes.Array():
                    return self._array(written, read, path)
                case shapes.Mapped(), shapes.Mapped():
                    return self._map(written, read, path)
                case shapes.Enumeration(), shapes.Enumeration():
                    return self._enumeration(written, read, path)
                case shapes.Record(), shapes.Record():
                    return self._record(written, read, path)
        return self._differ(path, f"{_shown(written)} is written, {_shown(read)} is read")

    def _differ(self, path: str, why: str) -> Convert:
        found = f"{path}: {why}"
        if found not in self.differences:
            self.differences.append(found)

        def fail(_: object) -> object:
            raise shapes.InvalidValue(why, path)

        return fail

    def _of_union(self, written: shapes.Union, read: shapes.Shape, path: str) -> Convert | None:
        """Convert each branch to the read shape; fastavro names the branch of records, enums and fixed values."""
        named: dict[str, Convert | None] = {}
        by_type: dict[type[object], Convert | None] = {}
        for branch, marked in zip(written.branches, marked_branches(written), strict=True):
            convert = self.convert(branch, read, path)
            if isinstance(marked, shapes.Scalar):
                by_type[shapes.PYTHON_TYPES[marked.type]] = convert
            elif isinstance(marked, shapes.Array | shapes.Mapped):
                by_type[list if isinstance(marked, shapes.Array) else dict] = convert
            else:
                named[shapes.name_of(marked)] = convert if marked is branch else _unmarking(convert)
        if not named and not any(by_type.values()):
            return None

        def choose(value: object) -> object:
            if type(value) is tuple:
                name, value = value
                convert = named[name]
            else:
                convert = by_type[type(value)]
            return value if convert is None else convert(value)

        return choose

    def _as_branch(self, written: shapes.Shape, read: shapes.Union, path: str) -> Convert | None:
        """Read as the most similar branch, or else as the first readable one."""
        matching = [branch for branch in read.branches if _matches(written, branch)]
        if not matching:
            return self._differ(path, f"{_shown(written)} is written, only {_shown(read)} is read")
        return self.convert(written, min(matching, key=partial(_mismatch, written)), path)

    def _array(self, written: shapes.Array, read: shapes.Array, path: str) -> Convert | None:
        convert, make = self.convert(written.items, read.items, f"{path}[]"), read.make
        if convert is None:
            return None if make is list else make
        return lambda values: make([convert(item) for item in values])

    def _map(self, written: shapes.Mapped, read: shapes.Mapped, path: str) -> Convert | None:
        convert = self.convert(written.values, read.values, f"{path}{{}}")
        if convert is None:
            return None
        return lambda values: {key: convert(item) for key, item in values.items()}

    def _enumeration(self, written: shapes.Enumeration, read: shapes.Enumeration, path: str) -> Convert:
        symbols = dict(read.symbols)
        unknown = [symbol for symbol in written.symbols if symbol not in symbols]
        if unknown and read.default is None:
            self._differ(path, f"the symbols {', '.join(unknown)} are written, and unknown to {_shown(read)}")
        elif unknown:
            symbols |= dict.fromkeys(unknown, symbols[str(read.default)])

        def member(symbol: str) -> object:
            try:
                return symbols[symbol]
            except KeyError:
                raise shapes.InvalidValue(f"the symbol {symbol} is unknown to {_shown(read)}", path) from None

        return member

    def _record(self, written: shapes.Record, read: shapes.Record, path: str) -> Convert:
        key = id(written), id(read)
        if key in self._made:
            return self._made[key]
        converted: list[tuple[str, str, Convert]] = []  # filled below: a record may contain itself
        taken: list[tuple[str, str]] = []
        made: list[tuple[str, Callable[[], object]]] = []
        kind = read.type

        def make(value: dict[str, object]) -> object:
            arguments = {parameter: value[name] for parameter, name in taken}
            for parameter, name, convert in converted:
                arguments[parameter] = convert(value[name])
            for parameter, default in made:
                arguments[parameter] = default()
            return kind(**arguments)

        self._made[key] = make
        by_name = {field.name: field for field in written.fields}
        for field in read.fields:
            place = f"{path}.{field.name}"
            source = next((by_name[name] for name in (field.name, *field.aliases) if name in by_name), None)
            if source is not None:
                convert = self.convert(source.shape, field.shape, place)
                if convert is None:
                    taken.append((field.parameter, source.name))
                else:
                    converted.append((field.parameter, source.name, convert))
            elif field.default is not None:
                made.append((field.parameter, field.default))
            else:
                fail = self._differ(place, f"is not written, and has no default: {_shown(field.shape)} is read")
                made.append((field.parameter, partial(fail, None)))
        return make


def _matches(written: shapes.Shape, read: shapes.Shape) -> bool:
    """Return whether one shape may be read as another, ignoring nested shapes; neither is a union."""
    match written, read:
        case shapes.Scalar(), shapes.Scalar():
            return shapes.is_readable(read, written)
        case shapes.Record(), shapes.Record():
            return _names_match(written, read)
        case shapes.Enumeration(), shapes.Enumeration():
            return _names_match(written, read)
        case shapes.Fixed(), shapes.Fixed():
            return written.size == read.size and written.meaning == read.meaning and _names_match(written, read)
        case shapes.Fixed(meaning=shapes.Scalar() as meaning), shapes.Scalar():
            return shapes.is_readable(read, meaning)
    return type(written) is type(read)


def _names_match(written: Named, read: Named) -> bool:
    """Return whether names match without namespaces, as in Java's Avro, or by an alias."""
    aliases = read.aliases if isinstance(read, shapes.Record) else ()
    return shapes.short_name(written) == shapes.short_name(read) or not {
        written.name,
        shapes.short_name(written),
    }.isdisjoint(aliases)


def _mismatch(written: shapes.Shape, read: shapes.Shape) -> tuple[bool, bool]:
    """Return the differences of two readable shapes, in Python type or name and in Avro type, for ranking."""
    if isinstance(written, shapes.Scalar) and isinstance(read, shapes.Scalar):
        return shapes.python_type(written) is not shapes.python_type(read), written.type != read.type
    return False, getattr(written, "name", None) != getattr(read, "name", None)


def _unmarking(convert: Convert | None) -> Convert:
    if convert is None:
        return itemgetter(MARKED)
    return lambda value: convert(value[MARKED])


def _shown(shape: shapes.Shape) -> str:  # noqa: PLR0911  # one for each shape
    match shape:
        case shapes.Scalar():
            return shape.type if shape.logical is None else f"{shape.type} ({shape.logical})"
        case shapes.Union():
            return " or ".join(map(_shown, shape.branches))
        case shapes.Array():
            return f"an array of {_shown(shape.items)}"
        case shapes.Mapped():
            return f"a map of {_shown(shape.values)}"
        case shapes.Fixed():
            return f"{shape.name}, {shape.size} bytes"
        case shapes.Enumeration():
            return f"the enum {shape.name}"
    return f"the record {shape.name}"


_AVRO: Final = ("AVRO", "JSON")
"""Schema types with Avro definitions."""


def cannot_read(ours: SchemaText, topics: SchemaText) -> tuple[str, ...]:
    """Return the differences that prevent our schema from reading the topic's; empty if none or unknown."""
    if ours.type != topics.type:
        return (f"the topic has a schema of type {topics.type}, this one is {ours.type}",)
    if ours.type not in _AVRO:
        return ()
    return _unreadable(topics, ours)


def explain(ours: SchemaText, topics: SchemaText) -> tuple[str, ...]:
    """Return differences that may have caused a broker to reject our schema, under any compatibility strategy."""
    found = cannot_read(ours, topics)
    if ours.type != topics.type or ours.type not in _AVRO:
        return found
    others = _unreadable(ours, topics)
    return (
        *(f"reading the topic's: {difference}" for difference in found),
        *(f"for the topic's readers: {difference}" for difference in others),
    )


def bytes_on(topics: SchemaText | None) -> shapes.Scalar:
    """Return how bytes are written in the JSON of a topic: as text if the official Python client defined it."""
    if topics is None:
        return shapes.TEXT_OR_BASE64
    found = json.loads(topics.definition) if topics.type == "JSON" else None
    return next(
        (form for form in (shapes.TEXT_BYTES, shapes.TEXT_OR_BASE64) if _indicates(form, found)), shapes.PLAIN_BYTES
    )


def _indicates(bytes_as: shapes.Scalar, found: object) -> bool:
    if isinstance(found, list):
        return any(_indicates(bytes_as, part) for part in found)
    if not isinstance(found, dict):
        return False
    fields = found.get("fields", ())
    nullable = [[*field] for field in fields if isinstance(field["type"], list) and "null" in field["type"]]
    # Other clients' definitions have the defaults of nullable fields, after the type.
    has_defaults = any("default" in keys and keys.index("default") > keys.index("type") for keys in nullable)
    if found.get("logicalType") == bytes_as.logical or (
        bytes_as is shapes.TEXT_BYTES and nullable and not has_defaults
    ):
        return True
    inside = [found.get("items"), found.get("values"), found.get("type"), *(field["type"] for field in fields)]
    return any(_indicates(bytes_as, part) for part in inside)


def _unreadable(written: SchemaText, read: SchemaText) -> tuple[str, ...]:
    try:
        return differences(*(shape_of_definition(json.loads(text.definition)) for text in (written, read)))
    except (InvalidUse, ValueError):  # JSON schemas need not be Avro definitions
        return ()
