"""What one version of a schema wrote, read as another one: Avro's resolution, and what prevents it, in words (pure).

One walk gives both: what makes values, and the differences for which there are none. Mirrors Avro's
`SchemaCompatibility` and `ResolvingDecoder`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from pulsar_ext.errors import InvalidUse

from .avro_definition import MARKED, marked_branches, shape_of_definition
from .shapes import (
    PLAIN_BYTES,
    PYTHON_TYPES,
    TEXT_BYTES,
    TEXT_OR_BASE64,
    Array,
    Enumeration,
    Field,
    Fixed,
    Mapped,
    Record,
    Scalar,
    Shape,
    Unfit,
    Union,
    from_plain,
    is_readable,
    name_of,
    python_type,
)

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Difference:
    """Something that was written and cannot be read.

    Args:
        path: where, from the record on, as `Order.items[].price`.
        why: what is written there, and what was to be read.
    """

    path: str
    why: str

    def __str__(self) -> str:
        return f"{self.path}: {self.why}"


@dataclass(frozen=True, slots=True)
class Reading:
    """How to read what was written.

    Args:
        convert: makes the value of what plain Avro has read; raises `Unfit` where there is a difference.
        differences: what cannot be read; none if everything can.
    """

    convert: Callable[[Any], Any]
    differences: tuple[Difference, ...]


def reading_of(written: Shape, read: Shape) -> Reading:
    """Find out how to read what has one shape as another one.

    Args:
        written: the shape of the definition that it was written with.
        read: the shape that it is read as.
    """
    walk = _Walk()
    convert = walk.convert(written, read, name_of(read).rpartition(".")[2])
    return Reading(convert or (lambda value: value), tuple(walk.differences))


def differences(written: Shape, read: Shape) -> tuple[Difference, ...]:
    """Give what cannot be read of one shape as another one."""
    return reading_of(written, read).differences


class _Walk:
    """One walk over two shapes; what it makes is None where the value is what plain Avro has read."""

    def __init__(self) -> None:
        self.differences: list[Difference] = []
        self._made: dict[tuple[int, int], list[Any]] = {}

    def convert(self, written: Shape, read: Shape, path: str) -> Callable[[Any], Any] | None:
        if isinstance(written, Union):
            return self._of_union(written, read, path)
        if isinstance(read, Union):
            return self._as_branch(written, read, path)
        if not _matches(written, read):
            return self._differ(path, f"{_shown(written)} is written, {_shown(read)} is read")
        same: dict[type[Any], Callable[[Any, Any, str], Callable[[Any], Any] | None]] = {
            Scalar: lambda written, read, path: from_plain(read, _meaning(written), path),
            Fixed: lambda written, read, path: read.meaning and from_plain(read.meaning, _meaning(written), path),
            Array: self._array,
            Mapped: self._map,
            Enumeration: self._enumeration,
            Record: self._record,
        }
        return same[type(read)](written, read, path)

    def _differ(self, path: str, why: str) -> Callable[[Any], Any]:
        found = Difference(path, why)
        if found not in self.differences:
            self.differences.append(found)

        def refuse(_: Any) -> Any:
            raise Unfit(why, path)

        return refuse

    def _of_union(self, written: Union, read: Shape, path: str) -> Callable[[Any], Any] | None:
        """Read each branch as what it is read as; fastavro says by a name which record, enum or fixed it was."""
        named: dict[str, Callable[[Any], Any] | None] = {}
        by_type: dict[type[Any], Callable[[Any], Any] | None] = {}
        for branch, marked in zip(written.branches, marked_branches(written), strict=True):
            convert = self.convert(branch, read, path)
            match marked:
                case Scalar():
                    by_type[PYTHON_TYPES[marked.type]] = convert
                case Array():
                    by_type[list] = convert
                case Mapped():
                    by_type[dict] = convert
                case _:
                    named[name_of(marked)] = convert if marked is branch else _unmarking(convert)
        if not named and not any(by_type.values()):
            return None

        def choose(value: Any) -> Any:
            if type(value) is tuple:
                name, value = value
                convert = named[name]
            else:
                convert = by_type[type(value)]
            return value if convert is None else convert(value)

        return choose

    def _as_branch(self, written: Shape, read: Union, path: str) -> Callable[[Any], Any] | None:
        """Read it as the branch that is most like it, or else the first that it can be read as."""
        matching = [one for one in read.branches if _matches(written, one)]
        if not matching:
            return self._differ(path, f"{_shown(written)} is written, only {_shown(read)} is read")
        return self.convert(written, min(matching, key=partial(_differing, written)), path)

    def _array(self, written: Array, read: Array, path: str) -> Callable[[Any], Any] | None:
        convert, make = self.convert(written.items, read.items, f"{path}[]"), read.make
        if convert is None:
            return None if make is list else make
        return lambda values: make([convert(one) for one in values])

    def _map(self, written: Mapped, read: Mapped, path: str) -> Callable[[Any], Any] | None:
        convert = self.convert(written.values, read.values, f"{path}{{}}")
        if convert is None:
            return None
        return lambda values: {key: convert(one) for key, one in values.items()}

    def _enumeration(self, written: Enumeration, read: Enumeration, path: str) -> Callable[[Any], Any]:
        symbols = dict(read.symbols)
        unknown = [one for one in written.symbols if one not in symbols]
        if unknown and read.default is None:
            self._differ(path, f"the symbols {', '.join(unknown)} are written, and unknown to {_shown(read)}")
        elif unknown:
            symbols |= dict.fromkeys(unknown, symbols[str(read.default)])

        def member(symbol: str) -> Any:
            try:
                return symbols[symbol]
            except KeyError:
                raise Unfit(f"the symbol {symbol} is unknown to {_shown(read)}", path) from None

        return member

    def _record(self, written: Record, read: Record, path: str) -> Callable[[Any], Any]:
        made = self._made.get((id(written), id(read)))
        if made is None:
            made = self._made[id(written), id(read)] = []
            made.append(self._record_reader(written, read, path))
        return lambda value: made[0](value)  # noqa: PLW0108  # made when it is called: a record may contain itself

    def _record_reader(self, written: Record, read: Record, path: str) -> Callable[[Any], Any]:
        by_name = {one.name: one for one in written.fields}
        converted: list[tuple[str, str, Callable[[Any], Any]]] = []
        taken: list[tuple[str, str]] = []
        made: list[tuple[str, Callable[[], Any]]] = []
        for field in read.fields:
            place = f"{path}.{field.name}"
            source = _source(field, by_name)
            if source is not None:
                convert = self.convert(source.shape, field.shape, place)
                if convert is None:
                    taken.append((field.parameter, source.name))
                else:
                    converted.append((field.parameter, source.name, convert))
            elif field.default is not None:
                made.append((field.parameter, field.default))
            else:
                refuse = self._differ(place, f"is not written, and has no default: {_shown(field.shape)} is read")
                made.append((field.parameter, lambda refuse=refuse: refuse(None)))  # type: ignore[misc]
        kind = read.type

        def make(value: Any) -> Any:
            arguments = {parameter: value[name] for parameter, name in taken}
            for parameter, name, convert in converted:
                arguments[parameter] = convert(value[name])
            for parameter, default in made:
                arguments[parameter] = default()
            return kind(**arguments)

        return make


def _source(field: Field, by_name: dict[str, Field]) -> Field | None:
    for name in (field.name, *field.aliases):
        if name in by_name:
            return by_name[name]
    return None


def _matches(written: Shape, read: Shape) -> bool:
    """Whether a shape, no union, may be read as another one, whatever is inside."""
    if isinstance(read, Union):
        return any(_matches(written, one) for one in read.branches)
    match written, read:
        case Scalar(), Scalar():
            return is_readable(read, written)
        case (Record(), Record()) | (Enumeration(), Enumeration()):
            return _is_called(written, read)
        case Fixed(), Fixed():
            return written.size == read.size and written.meaning == read.meaning and _is_called(written, read)
        case Fixed(meaning=Scalar() as meaning), Scalar():
            return is_readable(read, meaning)
    return type(written) is type(read)


def _meaning(written: Any) -> Any:
    return written.meaning if isinstance(written, Fixed) else written


def _is_called(written: Any, read: Any) -> bool:
    """Whether the names agree but for their namespaces, as Java's Avro has it, or the older name does."""
    short = written.name.rpartition(".")[2]
    aliases = getattr(read, "aliases", ())
    return short == read.name.rpartition(".")[2] or written.name in aliases or short in aliases


def _differing(written: Shape, read: Shape) -> tuple[bool, bool]:
    """Give in what two shapes differ of which one may be read as the other: in what they mean, and in what they are."""
    if isinstance(written, Scalar) and isinstance(read, Scalar):
        return python_type(written) is not python_type(read), written.type != read.type
    return False, getattr(written, "name", None) != getattr(read, "name", None)


def _unmarking(convert: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    if convert is None:
        return itemgetter(MARKED)
    return lambda value: convert(value[MARKED])


def _shown(shape: Shape) -> str:  # noqa: PLR0911  # a word for each
    match shape:
        case Scalar():
            return shape.type if shape.logical is None else f"{shape.type} ({shape.logical})"
        case Union():
            return " or ".join(map(_shown, shape.branches))
        case Array():
            return f"an array of {_shown(shape.items)}"
        case Mapped():
            return f"a map of {_shown(shape.values)}"
        case Fixed():
            return f"{shape.name}, {shape.size} bytes"
        case Enumeration():
            return f"the enum {shape.name}"
    return f"the record {shape.name}"


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
