"""The shape of a dataclass or of a pydantic model, from its annotations (pure).

`pydantic` is never imported here: its models are recognised by what they have. An annotation may say more about a field
than its Python type: `Annotated[int, AvroType("int")]`.
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
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, get_args, get_origin

from pulsar_ext.errors import InvalidUse

from .avro_definition import NoDefault, written_default
from .shapes import PLAIN_BYTES, Array, Enumeration, Field, Mapped, Record, Scalar, Shape, Unfit, Union, name_of
from .values import branch_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass(frozen=True, slots=True)
class AvroType:
    """The Avro type of a field, where it is not that which the Python type has by default.

    Args:
        name: a primitive Avro type.
        logical: its logical type.
        precision: how many digits a `decimal` has.
        scale: how many of them are behind the point.
    """

    name: str
    logical: str | None = None
    precision: int = 0
    scale: int = 0


class AvroName:
    """The name of a field on the wire, where it is not its Python name, and the names that it had before.

    Args:
        name: as Java's field, such as `unitPrice`.
        *aliases: what older versions of the schema call it.
    """

    __slots__ = ("aliases", "name")

    def __init__(self, name: str, *aliases: str) -> None:
        self.name, self.aliases = name, aliases


def decimal_type(precision: int, scale: int = 0) -> AvroType:
    """Give the type of a `Decimal` that is written as Avro's `decimal`.

    price: Annotated[Decimal, decimal_type(10, 2)]

    Args:
        precision: how many digits it has.
        scale: how many of them are behind the point. A value that needs more raises as it is sent.
    """
    return AvroType("bytes", "decimal", precision, scale)


Int32 = Annotated[int, AvroType("int")]
"""Java's `int`; Python's `int` is Java's `long` otherwise."""

Float32 = Annotated[float, AvroType("float")]
"""Java's `float`; Python's `float` is Java's `double` otherwise."""

TimestampMillis = Annotated[dt.datetime, AvroType("long", "timestamp-millis")]
"""A point in time, cut to milliseconds; to microseconds otherwise, as Java's `Instant`."""

LocalTimestamp = Annotated[dt.datetime, AvroType("long", "local-timestamp-micros")]
"""A date and a time without a time zone."""

TimeMillis = Annotated[dt.time, AvroType("int", "time-millis")]
"""A time of day, cut to milliseconds, as Java's `LocalTime`; to microseconds otherwise."""

JAVA_DECIMAL: Final = AvroType("string", "java.math.BigDecimal")
"""How Java's Avro writes a `BigDecimal` by default: exactly, as text."""


_SCALARS: Final[dict[Any, Scalar]] = {
    bool: Scalar("boolean"),
    int: Scalar("long"),
    float: Scalar("double"),
    str: Scalar("string"),
    bytes: PLAIN_BYTES,
    None: Scalar("null"),
    type(None): Scalar("null"),
    dt.datetime: Scalar("long", "timestamp-micros"),
    dt.date: Scalar("int", "date"),
    dt.time: Scalar("long", "time-micros"),
    uuid.UUID: Scalar("string", "uuid"),
    decimal.Decimal: Scalar(JAVA_DECIMAL.name, JAVA_DECIMAL.logical),
}
_ARRAYS: Final[dict[Any, Callable[[Any], Any]]] = {
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


def is_model(kind: object) -> bool:
    """Whether something is a dataclass or a pydantic model."""
    return isinstance(kind, type) and (dataclasses.is_dataclass(kind) or _is_pydantic(kind))


def shape_of_model(model: type[Any], bytes_as: Scalar = PLAIN_BYTES) -> Record:
    """Give the shape of a dataclass or a pydantic model.

    Raises:
        InvalidUse: a field has a type that Avro has not, or one that cannot be told from another of its union; or a
            default is of another type than the field.
    """
    reading = _Reading(model, bytes_as)
    shape = reading.record(model)
    reading.settle_defaults()
    return shape


def _is_pydantic(kind: type[Any]) -> bool:
    return hasattr(kind, "__pydantic_fields__") and hasattr(kind, "model_validate")


@dataclasses.dataclass(frozen=True)
class _Given:
    """A field as the model declares it; `default` is None if it has to be given."""

    name: str
    annotation: Any
    metadata: tuple[Any, ...] = ()
    default: Callable[[], Any] | None = None
    wire: str = ""
    parameter: str = ""


class _Reading:
    """Reads one model, and those that it contains, each once."""

    def __init__(self, model: type[Any], bytes_as: Scalar) -> None:
        self._model, self._bytes = model, bytes_as
        self._known: dict[type[Any], Record | Enumeration] = {}
        self._names: dict[str, type[Any]] = {}
        self._path: list[str] = [model.__name__]
        self._space = ""

    def record(self, model: type[Any]) -> Record:
        known = self._known.get(model)
        if known is not None:
            assert isinstance(known, Record)  # noqa: S101  # by what it is known for
            return known
        record = Record(self._name(model), model, aliases=tuple(getattr(model, "__avro_aliases__", ())))
        self._known[model] = record
        for given in _pydantic_fields(model) if _is_pydantic(model) else _dataclass_fields(model):
            self._path.append(given.name)
            record.fields.append(self._field(given))
            self._path.pop()
        names = [one.name for one in record.fields]
        if twice := {name for name in names if names.count(name) > 1}:
            raise self._refuse(f"several fields have the name {', '.join(sorted(twice))} on the wire")
        return record

    def _field(self, given: _Given) -> Field:
        shape = self._shape(given.annotation, given.metadata)
        marks = [*given.metadata, *_marks(given.annotation)]
        named = next((one for one in marks if isinstance(one, AvroName)), None)
        name = named.name if named else given.wire or given.name
        if not _NAME.fullmatch(name):
            raise self._refuse(f"{name!r} is no Avro name: give it one with AvroName(…)")
        if given.default is not None and isinstance(shape, Union):  # whose first branch a default is of
            with contextlib.suppress(Unfit):
                first = branch_of(shape, given.default())
                shape = Union((first, *(one for one in shape.branches if one is not first)))
        aliases = named.aliases if named else ()
        return Field(name, given.name, shape, given.default, aliases, given.parameter or given.name)

    def settle_defaults(self) -> None:
        """Keep only defaults that the topic's schema can have: a reader is to find the same without this model."""
        for record in self._known.values():
            if not isinstance(record, Record):
                continue
            for index, field in enumerate(record.fields):
                if field.default is None:
                    continue
                try:
                    written_default(field.shape, field.default())
                except NoDefault:
                    record.fields[index] = dataclasses.replace(field, default=None)
                except Unfit as error:
                    place = f"{record.type.__name__}.{field.attribute}{error.path}"
                    raise InvalidUse(f"The default of {place} {error.why}. Nothing was opened.") from None

    def _shape(self, kind: Any, marks: tuple[Any, ...] = ()) -> Shape:  # noqa: PLR0911  # each kind of annotation
        while isinstance(kind, typing.NewType) or hasattr(kind, "__value__"):
            kind = kind.__supertype__ if isinstance(kind, typing.NewType) else kind.__value__
        if get_origin(kind) is Annotated:
            kind, *more = get_args(kind)
            return self._shape(kind, (*more, *marks))
        given = next((one for one in marks if isinstance(one, AvroType)), None)
        origin = get_origin(kind)
        if origin in (typing.Union, types.UnionType):
            return self._union([self._shape(one, marks if one is not type(None) else ()) for one in get_args(kind)])
        if given is not None:
            return Scalar(given.name, given.logical, given.precision, given.scale)
        if origin is typing.Literal and all(isinstance(one, str) for one in get_args(kind)):
            return Scalar("string", texts=get_args(kind))
        if kind in _SCALARS:
            return self._bytes if kind is bytes else _SCALARS[kind]
        if origin is not None:
            return self._generic(kind, origin, get_args(kind))
        if isinstance(kind, type) and issubclass(kind, enum.Enum):
            return self._enumeration(kind)
        if is_model(kind):
            return self.record(kind)
        shown = getattr(kind, "__name__", kind)
        raise self._refuse(f"{shown} has no Avro type: use another one, or Annotated[…, AvroType(…)]")

    def _generic(self, kind: Any, origin: Any, arguments: tuple[Any, ...]) -> Shape:
        if origin is tuple and (len(arguments) != 2 or arguments[1] is not Ellipsis):  # noqa: PLR2004  # tuple[int, ...]
            raise self._refuse(f"{kind} has no Avro type, which has no tuples: use a dataclass, or tuple[…, ...]")
        if origin in _ARRAYS:
            return Array(self._shape(arguments[0]), _ARRAYS[origin], _WRITTEN_AS_ARRAY)
        if origin in _MAPS and arguments[0] is str:
            return Mapped(self._shape(arguments[1]))
        raise self._refuse(f"{kind} has no Avro type" + (", whose keys are str" if origin in _MAPS else ""))

    def _union(self, branches: list[Shape]) -> Shape:
        order = {"null": 0, "boolean": 1, "int": 2, "long": 3, "float": 4, "double": 5}
        branches = sorted(branches, key=lambda one: order.get(name_of(one), 9))  # what promotes comes first
        names = [name_of(one) for one in branches]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise self._refuse(f"a union has two types that Avro cannot tell apart, both {twice[0]}")
        return Union(tuple(branches))

    def _enumeration(self, kind: type[enum.Enum]) -> Enumeration:
        known = self._known.get(kind)
        if known is None:
            symbols = {name: member for name, member in kind.__members__.items() if member.name == name}
            if bad := [name for name in symbols if not _NAME.fullmatch(name)]:
                raise self._refuse(f"{bad[0]!r} cannot be a symbol of an Avro enum")
            default = getattr(kind, "__avro_default__", None)
            known = Enumeration(self._name(kind), symbols, default.name if isinstance(default, kind) else default, kind)
            self._known[kind] = known
        assert isinstance(known, Enumeration)  # noqa: S101  # by what it is known for
        return known

    def _name(self, kind: type[Any]) -> str:
        name: str = kind.__dict__.get("__avro_name__") or re.sub(r"\W+", "_", kind.__name__, flags=re.ASCII)
        if not self._names:
            self._space = name.rpartition(".")[0]
        elif "." in name and not self._space:
            raise self._refuse(f"{name} is in a namespace: give {self._model.__name__} an __avro_name__ in one as well")
        elif "." not in name and self._space:
            name = f"{self._space}.{name}"
        if not _FULL_NAME.fullmatch(name):
            raise self._refuse(f"{name!r} is no Avro name: give {kind.__name__} an __avro_name__")
        if self._names.setdefault(name, kind) is not kind:
            raise self._refuse(f"two classes have the name {name}: give one of them an __avro_name__")
        return name

    def _refuse(self, why: str) -> InvalidUse:
        return InvalidUse(f"{'.'.join(self._path)}: {why}. Nothing was opened.")


def _marks(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()


def _dataclass_fields(model: type[Any]) -> Iterator[_Given]:
    hints = _hints(model)
    for one in dataclasses.fields(model):
        if not one.init:
            continue  # made of the others
        is_made = one.default is dataclasses.MISSING
        default = _empty(one.default_factory) if is_made else _giving(one.default)
        yield _Given(one.name, hints[one.name], default=default)


def _pydantic_fields(model: type[Any]) -> Iterator[_Given]:
    for name, one in model.__pydantic_fields__.items():
        wire = one.serialization_alias or one.alias or ""
        taken = one.validation_alias or one.alias or name
        if not isinstance(taken, str):
            raise InvalidUse(
                f"{model.__name__}.{name} is validated by {taken!r}, which is no name. Nothing was opened."
            )
        default = _empty(one.default_factory)
        if one.default_factory is None and not one.is_required():
            default = one.get_default  # a copy each time, of what can be changed
        yield _Given(name, one.annotation, tuple(one.metadata), default, wire, taken)


def _empty(factory: Any) -> Callable[[], Any] | None:
    """Give what makes the default that goes into the schema, if it makes something empty.

    What another factory makes, such as the time, is different each time: a schema of it would be a new one each time.
    """
    return factory if factory in _EMPTY else None


def _giving(value: Any) -> Callable[[], Any]:
    return lambda: value


def _hints(model: type[Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(model, include_extras=True)
    except NameError as error:
        raise InvalidUse(
            f"An annotation of {model.__name__} cannot be read: {error}. Define what it names in a module, not in a "
            "function. Nothing was opened."
        ) from None
