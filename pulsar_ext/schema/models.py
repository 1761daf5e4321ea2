"""Shapes of dataclasses and pydantic models, from their annotations (pure).

`pydantic` is never imported here: its models are recognized by their attributes. An annotation may refine a Python
type: `Annotated[int, AvroType("int")]`.
"""

from __future__ import annotations

import collections.abc
import contextlib
import dataclasses
import datetime as dt
import decimal
import enum
import re
import types
import typing
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeGuard, get_args, get_origin

from pulsar_ext.errors import InvalidUse

from . import shapes
from .avro_definition import UnsupportedDefault, written_default

if TYPE_CHECKING:
    from pydantic import BaseModel


@dataclass(frozen=True, slots=True)
class AvroType:
    """The Avro type of a field, if not that of its Python type: its name, a logical type, the digits of a `decimal`."""

    name: str
    logical: str | None = None
    precision: int = 0
    scale: int = 0


class AvroName:
    """The name of a field in the schema, such as Java's `unitPrice`, and its names in older versions of the schema."""

    __slots__ = ("aliases", "name")

    def __init__(self, name: str, *aliases: str) -> None:
        self.name, self.aliases = name, aliases


def decimal_type(precision: int, scale: int = 0) -> AvroType:
    """Return the type of an Avro `decimal` with these digits, after the point `scale`; a value with more raises.

    price: Annotated[Decimal, decimal_type(10, 2)]
    """
    return AvroType("bytes", "decimal", precision, scale)


Int32 = Annotated[int, AvroType("int")]
"""Java's `int`; a plain Python `int` is Java's `long`."""

Float32 = Annotated[float, AvroType("float")]
"""Java's `float`; a plain Python `float` is Java's `double`."""

TimestampMillis = Annotated[dt.datetime, AvroType("long", "timestamp-millis")]
"""A point in time with milliseconds; a plain `datetime` has microseconds, as Java's `Instant`."""

LocalTimestamp = Annotated[dt.datetime, AvroType("long", "local-timestamp-micros")]
"""A date and a time without a time zone."""

TimeMillis = Annotated[dt.time, AvroType("int", "time-millis")]
"""A time of day with milliseconds, as Java's `LocalTime`; a plain `time` has microseconds."""

JAVA_DECIMAL: Final = AvroType("string", "java.math.BigDecimal")
"""Java's default for `BigDecimal` in Avro: exact text."""


_SCALARS: Final[dict[object, shapes.Scalar]] = {
    bool: shapes.Scalar("boolean"),
    int: shapes.Scalar("long"),
    float: shapes.Scalar("double"),
    str: shapes.Scalar("string"),
    bytes: shapes.PLAIN_BYTES,
    None: shapes.Scalar("null"),
    type(None): shapes.Scalar("null"),
    dt.datetime: shapes.Scalar("long", "timestamp-micros"),
    dt.date: shapes.Scalar("int", "date"),
    dt.time: shapes.Scalar("long", "time-micros"),
    uuid.UUID: shapes.Scalar("string", "uuid"),
    decimal.Decimal: shapes.Scalar(JAVA_DECIMAL.name, JAVA_DECIMAL.logical),
}
_ARRAYS: Final[dict[object, Callable[[Iterable[object]], object]]] = {
    list: list,
    set: set,
    frozenset: frozenset,
    tuple: tuple,
    collections.abc.Sequence: list,
    collections.abc.Set: set,
}
_WRITTEN_AS_ARRAY: Final = (list, tuple, set, frozenset)
_MAPS: Final = (dict, collections.abc.Mapping, collections.abc.MutableMapping)
_EMPTY: Final = (list, dict, set, frozenset, tuple)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_FULL_NAME = re.compile(rf"{_NAME.pattern}(\.{_NAME.pattern})*", re.ASCII)


def is_model(kind: object) -> TypeGuard[type[Any]]:
    """Return whether an object is a dataclass or a pydantic model class."""
    return isinstance(kind, type) and (dataclasses.is_dataclass(kind) or _is_pydantic(kind))


def shape_of_model(model: type[object], bytes_as: shapes.Scalar = shapes.PLAIN_BYTES) -> shapes.Record:
    """Return the shape of a dataclass or a pydantic model."""
    reading = _Reading(model, bytes_as)
    shape = reading.record(model)
    reading.drop_unsupported_defaults()
    return shape


def _is_pydantic(kind: type[object]) -> TypeGuard[type[BaseModel]]:
    return hasattr(kind, "__pydantic_fields__") and hasattr(kind, "model_validate")


class _Reading:
    def __init__(self, model: type[object], bytes_as: shapes.Scalar) -> None:
        self._model, self._bytes = model, bytes_as
        self._records: dict[type[object], shapes.Record] = {}
        self._enumerations: dict[type[object], shapes.Enumeration] = {}
        self._names: dict[str, type[object]] = {}
        self._path: list[str] = [model.__name__]
        self._space = ""

    def record(self, model: type[object]) -> shapes.Record:
        if model in self._records:
            return self._records[model]
        record = shapes.Record(self._name(model), model, aliases=tuple(getattr(model, "__avro_aliases__", ())))
        self._records[model] = record
        record.fields.extend(self._of_pydantic(model) if _is_pydantic(model) else self._of_dataclass(model))
        names = [field.name for field in record.fields]
        if duplicates := {name for name in names if names.count(name) > 1}:
            raise self._error(f"several fields have the name {', '.join(sorted(duplicates))} in the schema")
        return record

    def _of_dataclass(self, model: type[Any]) -> Iterator[shapes.Field]:
        try:
            hints = typing.get_type_hints(model, include_extras=True)
        except NameError as error:
            raise InvalidUse(
                f"An annotation of {model.__name__} cannot be read: {error}. Define the types that it names in a "
                "module, not in a function. Nothing was opened."
            ) from None
        for field in dataclasses.fields(model):
            if field.init:  # otherwise it is computed from other fields
                has_factory = field.default is dataclasses.MISSING
                default = _empty(field.default_factory) if has_factory else shapes.constant(field.default)
                yield self._field(field.name, hints[field.name], default)

    def _of_pydantic(self, model: type[BaseModel]) -> Iterator[shapes.Field]:
        for name, field in model.__pydantic_fields__.items():
            wire = field.serialization_alias or field.alias or ""
            taken = field.validation_alias or field.alias or name
            if not isinstance(taken, str):
                raise InvalidUse(
                    f"{model.__name__}.{name} must have a str as validation alias, got {taken!r}. Nothing was opened."
                )
            default = _empty(field.default_factory)
            if field.default_factory is None and not field.is_required():
                default = field.get_default  # returns a copy of a mutable default
            yield self._field(name, field.annotation, default, tuple(field.metadata), wire, taken)

    def _field(
        self,
        attribute: str,
        annotation: object,
        default: Callable[[], object] | None,
        metadata: tuple[object, ...] = (),
        wire: str = "",
        parameter: str = "",
    ) -> shapes.Field:
        self._path.append(attribute)
        shape = self._shape(annotation, metadata)
        annotated = get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()
        named = next((mark for mark in (*metadata, *annotated) if isinstance(mark, AvroName)), None)
        name = named.name if named else wire or attribute
        if not _NAME.fullmatch(name):
            raise self._error(f"{name!r} is not a valid Avro name: set one with AvroName(…)")
        if default is not None and isinstance(shape, shapes.Union):  # a default must be of the first branch
            with contextlib.suppress(shapes.InvalidValue):
                first = shapes.branch_of(shape, default())
                shape = shapes.Union((first, *(branch for branch in shape.branches if branch is not first)))
        self._path.pop()
        return shapes.Field(name, attribute, shape, default, named.aliases if named else (), parameter or attribute)

    def drop_unsupported_defaults(self) -> None:
        """Remove defaults that the topic's schema cannot have, so that readers without this model see equal values."""
        for record in self._records.values():
            for index, field in enumerate(record.fields):
                try:
                    if field.default is not None:
                        written_default(field.shape, field.default())
                except UnsupportedDefault:
                    record.fields[index] = dataclasses.replace(field, default=None)
                except shapes.InvalidValue as error:
                    place = f"{record.type.__name__}.{field.attribute}{error.path}"
                    raise InvalidUse(f"The default of {place} {error.why}. Nothing was opened.") from None

    def _shape(self, kind: object, marks: tuple[object, ...] = ()) -> shapes.Shape:  # noqa: PLR0911  # each kind of annotation
        while isinstance(kind, typing.NewType) or hasattr(kind, "__value__"):
            kind = kind.__supertype__ if isinstance(kind, typing.NewType) else kind.__value__
        if get_origin(kind) is Annotated:
            kind, *more = get_args(kind)
            return self._shape(kind, (*more, *marks))
        given = next((mark for mark in marks if isinstance(mark, AvroType)), None)
        origin = get_origin(kind)
        if origin in (typing.Union, types.UnionType):
            return self._union(
                [self._shape(branch, marks if branch is not type(None) else ()) for branch in get_args(kind)]
            )
        if given is not None:
            return shapes.Scalar(given.name, given.logical, given.precision, given.scale)
        if origin is typing.Literal and all(isinstance(text, str) for text in get_args(kind)):
            return shapes.Scalar("string", texts=get_args(kind))
        if kind in _SCALARS:
            return self._bytes if kind is bytes else _SCALARS[kind]
        if origin is not None:
            return self._generic(kind, origin, get_args(kind))
        if isinstance(kind, type) and issubclass(kind, enum.Enum):
            return self._enumeration(kind)
        if is_model(kind):
            return self.record(kind)
        shown = getattr(kind, "__name__", kind)
        raise self._error(f"{shown} has no Avro type: use another one, or Annotated[…, AvroType(…)]")

    def _generic(self, kind: object, origin: object, arguments: tuple[object, ...]) -> shapes.Shape:
        if origin is tuple and (len(arguments) != 2 or arguments[1] is not Ellipsis):  # noqa: PLR2004  # tuple[int, ...]
            raise self._error(f"{kind} has no Avro type, as Avro has no tuples: use a dataclass, or tuple[…, ...]")
        if origin in _ARRAYS:
            return shapes.Array(self._shape(arguments[0]), _ARRAYS[origin], _WRITTEN_AS_ARRAY)
        if origin in _MAPS and arguments[0] is str:
            return shapes.Mapped(self._shape(arguments[1]))
        raise self._error(f"{kind} has no Avro type" + (": keys must be str" if origin in _MAPS else ""))

    def _union(self, branches: list[shapes.Shape]) -> shapes.Shape:
        order = {"null": 0, "boolean": 1, "int": 2, "long": 3, "float": 4, "double": 5}
        branches = sorted(branches, key=lambda branch: order.get(shapes.name_of(branch), 9))  # promotable types first
        names = [shapes.name_of(branch) for branch in branches]
        if duplicates := sorted({name for name in names if names.count(name) > 1}):
            raise self._error(f"a union has two branches of one Avro type, both {duplicates[0]}")
        return shapes.Union(tuple(branches))

    def _enumeration(self, kind: type[enum.Enum]) -> shapes.Enumeration:
        if kind not in self._enumerations:
            symbols = {name: member for name, member in kind.__members__.items() if member.name == name}
            if bad := [name for name in symbols if not _NAME.fullmatch(name)]:
                raise self._error(f"{bad[0]!r} cannot be a symbol of an Avro enum")
            default = getattr(kind, "__avro_default__", None)
            default = default.name if isinstance(default, kind) else default
            self._enumerations[kind] = shapes.Enumeration(self._name(kind), symbols, default, kind)
        return self._enumerations[kind]

    def _name(self, kind: type[object]) -> str:
        name: str = kind.__dict__.get("__avro_name__") or re.sub(r"\W+", "_", kind.__name__, flags=re.ASCII)
        if not self._names:
            self._space = name.rpartition(".")[0]
        elif "." in name and not self._space:
            raise self._error(
                f"{name} has a namespace: set an __avro_name__ with a namespace in {self._model.__name__} too"
            )
        elif "." not in name and self._space:
            name = f"{self._space}.{name}"
        if not _FULL_NAME.fullmatch(name):
            raise self._error(f"{name!r} is not a valid Avro name: set __avro_name__ in {kind.__name__}")
        if self._names.setdefault(name, kind) is not kind:
            raise self._error(f"two classes have the name {name}: set __avro_name__ in one of them")
        return name

    def _error(self, why: str) -> InvalidUse:
        return InvalidUse(f"{'.'.join(self._path)}: {why}. Nothing was opened.")


def _empty(factory: object) -> Callable[[], object] | None:
    """Return a factory of empty collections; others may return another value, so another schema, each time."""
    return factory if factory in _EMPTY else None
