"""Shapes: the wire type of values and their Python type; scalars both ways, and values to plain Avro (pure).

A shape is made from a model (`models.py`) or an Avro definition (`avro_definition.py`). Everything else works on
shapes: the definition for the topic, encoding of values, and decoding of values of other schema versions.

Logical types are converted here and not by fastavro, which interprets a time without a zone in the machine's zone, and
does not convert defaults.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from operator import attrgetter
from typing import Any, Final, TypeAlias, TypeVar

Convert: TypeAlias = Callable[[Any], Any]
"""Conversion of a user's value, or to one; it raises `InvalidValue`."""
Complex: TypeAlias = dict[str, Any]
Definition: TypeAlias = str | list["Definition"] | Complex
"""Avro definition, as parsed JSON; a complex one is an object."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Scalar:
    """A primitive Avro type, its logical type or Java class, the digits of a `decimal`, and the only allowed texts."""

    type: str
    logical: str | None = None
    precision: int = 0
    scale: int = 0
    texts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Fixed:
    """A fixed number of bytes; `meaning` is the scalar of a `decimal`."""

    name: str
    size: int
    meaning: Scalar | None = None


@dataclass(frozen=True, slots=True)
class Enumeration:
    """An enumeration: the Python value of each symbol, and the default for unknown symbols."""

    name: str
    symbols: Mapping[str, Any]
    default: str | None
    type: type[Any]


@dataclass(frozen=True, slots=True)
class Array:
    """A sequence; `make` makes the Python sequence of an iterable, `types` are the types accepted for writing."""

    items: Shape
    make: Callable[[Iterable[object]], object]
    types: tuple[type[Iterable[object]], ...]


@dataclass(frozen=True, slots=True)
class Mapped:
    """A mapping of text to values."""

    values: Shape


@dataclass(frozen=True, slots=True)
class Union:
    """A union of shapes."""

    branches: tuple[Shape, ...]

    @property
    def is_nullable(self) -> bool:
        """True if null is a branch."""
        return Scalar("null") in self.branches


@dataclass(frozen=True, slots=True)
class Field:
    """A field: its names in schema, object and class; `default` returns a missing value, None if required."""

    name: str
    attribute: str
    shape: Shape
    default: Callable[[], object] | None = None
    aliases: tuple[str, ...] = ()
    parameter: str = ""


@dataclass(eq=False, slots=True)
class Record:
    """A record with its full name and its Python class; it may contain itself, so fields are added afterwards."""

    name: str
    type: type[Any]
    fields: list[Field] = field(default_factory=list)
    aliases: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Record({self.name!r}, {[item.name for item in self.fields]})"


Named: TypeAlias = Record | Enumeration | Fixed
Shape: TypeAlias = Scalar | Fixed | Enumeration | Array | Mapped | Union | Record


def name_of(shape: Shape) -> str:
    """Return the name of a shape as a branch of an Avro union."""
    match shape:
        case Scalar(type):
            return type
        case Array():
            return "array"
        case Mapped():
            return "map"
        case Union():
            return "union"
    return shape.name


def short_name(shape: Shape) -> str:
    """Return the name without its namespace."""
    return name_of(shape).rpartition(".")[2]


def constant(value: T) -> Callable[[], T]:
    """Return a function that returns the value."""
    return lambda: value


PLAIN_BYTES: Final = Scalar("bytes")
"""Bytes, in JSON as base64."""
TEXT_BYTES: Final = Scalar("bytes", "text")
TEXT_OR_BASE64: Final = Scalar("bytes", "text-or-base64")
"""Bytes that are text in JSON; the second kind is base64 if it is not text. The logical type marks them in definitions,
and other readers ignore it."""

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_LOCAL_EPOCH: Final = dt.datetime(1970, 1, 1)  # noqa: DTZ001  # without a zone by design
_DAY_ONE: Final = dt.date(1970, 1, 1).toordinal()
_DAY_MICROS: Final = 86_400_000_000
_MICROSECOND: Final = dt.timedelta(microseconds=1)
_NANOS: Final = 1_000
_UNITS: Final = {"millis": 1_000, "micros": 1}
"""Microseconds of each unit."""

PYTHON_TYPES: Final[dict[str, type[object]]] = {
    "null": type(None),
    "boolean": bool,
    "int": int,
    "long": int,
    "float": float,
    "double": float,
    "string": str,
    "bytes": bytes,
}
_LOGICAL_TYPES: Final[dict[str, type[object]]] = {
    "date": dt.date,
    "time": dt.time,
    "timestamp": dt.datetime,
    "local-timestamp": dt.datetime,
    "decimal": decimal.Decimal,
    "java.math.BigDecimal": decimal.Decimal,
    "uuid": uuid.UUID,
}
_BOUNDS: Final = {"int": 1 << 31, "long": 1 << 63}
_FLOAT_BOUNDS: Final = {"float": float.fromhex("0x1.ffffffp127"), "double": math.inf}
"""Bounds above which a finite number would be written as infinity."""

_PROMOTIONS: Final = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
"""The other types as which Avro may read a type."""


class InvalidValue(Exception):  # noqa: N818  # never leaves the package
    """A value does not match its shape; `path` is its position in the value."""

    def __init__(self, why: str, path: str = "") -> None:
        super().__init__(f"{path} {why}".strip())
        self.why, self.path = why, path

    def within(self, place: str) -> InvalidValue:
        """Return this error with an outer path in front."""
        return type(self)(self.why, place + self.path)


class InvalidText(InvalidValue):
    """Bytes are not UTF-8 text where JSON has them as text."""


def _family(scalar: Scalar) -> str | None:
    """Return the family of a logical type, without its unit; None if it is unknown."""
    name = scalar.logical or ""
    stem, _, unit = name.rpartition("-")
    family = stem if unit in ("millis", "micros", "nanos") else name
    return family if family in _LOGICAL_TYPES else None


def _micros_per_unit(scalar: Scalar) -> int:
    return _UNITS.get((scalar.logical or "").rpartition("-")[2], 0)  # 0: nanoseconds


def python_type(scalar: Scalar) -> type[object]:
    """Return the Python type of a scalar."""
    family = _family(scalar)
    return PYTHON_TYPES[scalar.type] if family is None else _LOGICAL_TYPES[family]


def to_plain(scalar: Scalar) -> Convert:
    """Return a function that checks a Python value and converts it to plain Avro; it raises `InvalidValue`."""
    family, kind = _family(scalar), python_type(scalar)
    if family is not None:
        convert = _logical_to_plain(family, scalar)

        def logical(value: object) -> object:
            if family == "date" and isinstance(value, dt.datetime):
                raise InvalidValue(f"is {_shown(value)}, not date")
            return convert(checked(value, kind))

        return logical
    if scalar.type in _BOUNDS:
        return _bounded(scalar.type)
    if scalar.type in ("float", "double"):
        return _float_of(scalar.type)
    return checked_text if kind is str else lambda value: checked(value, kind)


def is_readable(scalar: Scalar, written: Scalar) -> bool:
    """Return whether a written scalar can be read as another with an equal meaning; Avro ignores logical types."""
    if scalar.type != written.type and scalar.type not in _PROMOTIONS.get(written.type, ()):
        return False
    family, other = _family(scalar), _family(written)
    if family is None:
        return scalar.type == written.type or other != "decimal"
    return family == other or {family, other} <= _DECIMALS


def from_plain(scalar: Scalar, written: Scalar, path: str) -> Convert | None:
    """Return a function from a plain Avro value, `written` as readable, to a Python value; None if they are equal."""
    family = _family(scalar)
    if family is not None:
        return _checked_conversion(_logical_from_plain(family, written), _LOGICAL_TYPES[family], path)
    if scalar.type in ("float", "double") and written.type in ("int", "long"):
        return float
    if scalar.type == written.type:
        return None
    if scalar.type == "string":
        return _checked_conversion(bytes.decode, str, path)
    return str.encode if scalar.type == "bytes" else None


_DECIMALS: Final = {"decimal", "java.math.BigDecimal"}


def _logical_to_plain(family: str, scalar: Scalar) -> Convert:
    unit = _micros_per_unit(scalar) or 1
    match family:
        case "timestamp":
            return lambda value: (_zoned(value) - _EPOCH) // _MICROSECOND // unit
        case "local-timestamp":
            return lambda value: (_unzoned(value) - _LOCAL_EPOCH) // _MICROSECOND // unit
        case "date":
            return lambda value: value.toordinal() - _DAY_ONE
        case "time":
            return lambda value: _time_micros(value) // unit
        case "decimal":
            return lambda value: _unscaled_bytes(value, scalar)
    return str if family == "uuid" else lambda value: str(_finite(value))


def _logical_from_plain(family: str, written: Scalar) -> Convert:  # noqa: PLR0911  # one for each
    unit = _micros_per_unit(written)

    def micros(number: int) -> int:
        return number * unit if unit else number // _NANOS

    match family:
        case "timestamp":
            return lambda number: _EPOCH + dt.timedelta(microseconds=micros(number))
        case "local-timestamp":
            return lambda number: _LOCAL_EPOCH + dt.timedelta(microseconds=micros(number))
        case "date":
            return lambda days: dt.date.fromordinal(days + _DAY_ONE)
        case "time":
            return lambda number: (_LOCAL_EPOCH + dt.timedelta(microseconds=micros(number) % _DAY_MICROS)).time()
        case "uuid":
            return uuid.UUID
    if written.type == "string":
        return decimal.Decimal
    scale = written.scale
    return lambda data: decimal.Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-scale, _EXACT)


_EXACT: Final = decimal.Context(prec=decimal.MAX_PREC, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)


def _checked_conversion(convert: Convert, kind: type[object], path: str) -> Convert:
    def checked(value: object) -> object:
        try:
            return convert(value)
        except (ValueError, OverflowError, ArithmeticError):
            raise InvalidValue(f"is {_shown(value)}, not a valid {kind.__name__}", path) from None

    return checked


def _shown(value: object) -> str:
    shown = repr(value)
    return f"{type(value).__name__} {shown if len(shown) <= 60 else shown[:60] + '…'}"  # noqa: PLR2004


def _bounded(name: str) -> Convert:
    bound = _BOUNDS[name]

    def bounded(value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise InvalidValue(f"is {_shown(value)}, not an int")
        if not -bound <= value < bound:
            raise InvalidValue(f"is {value}, beyond Avro's {name}")
        return value

    return bounded


def _float_of(name: str) -> Convert:
    bound = _FLOAT_BOUNDS[name]

    def as_float(value: object) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise InvalidValue(f"is {_shown(value)}, not a float")
        try:
            found = value if isinstance(value, float) else float(value)
        except OverflowError:
            raise InvalidValue(f"is an int beyond Avro's {name}") from None
        if -bound < found < bound or not math.isfinite(found):
            return found
        raise InvalidValue(f"is {value}, beyond Avro's {name}")

    return as_float


def checked(value: object, kinds: type[T] | tuple[type[T], ...]) -> T:
    """Return a value of one of these types; raise `InvalidValue` for any other value."""
    if isinstance(value, kinds):
        return value
    kind = kinds[0] if isinstance(kinds, tuple) else kinds
    raise InvalidValue(f"is {_shown(value)}, not {kind.__name__}")


def checked_text(value: object) -> str:
    """Return a text that can be encoded as UTF-8, or raise `InvalidValue`."""
    if not isinstance(value, str):
        raise InvalidValue(f"is {_shown(value)}, not a str")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise InvalidValue(f"is {_shown(value)}, not valid UTF-8: {error.reason}") from None
    return value


def _finite(value: decimal.Decimal) -> decimal.Decimal:
    if not value.is_finite():
        raise InvalidValue(f"is {value}, not a finite decimal")
    return value


def _zoned(value: dt.datetime) -> dt.datetime:
    if value.tzinfo is None:
        raise InvalidValue(
            f"is {value.isoformat()}, without a time zone: set one, or annotate the field with LocalTimestamp"
        )
    return value


def _unzoned(value: dt.datetime) -> dt.datetime:
    if value.tzinfo is not None:
        raise InvalidValue(f"is {value.isoformat()}, with a time zone, which a local timestamp cannot have")
    return value


def _time_micros(value: dt.time) -> int:
    if value.tzinfo is not None:
        raise InvalidValue(f"is {value.isoformat()}, with a time zone, which Avro's time of day cannot have")
    return ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond


def _unscaled_bytes(value: decimal.Decimal, scalar: Scalar) -> bytes:
    unscaled = _finite(value).scaleb(scalar.scale, _EXACT)
    is_small = not value or unscaled.adjusted() < scalar.precision  # other values may have a billion digits as an int
    number = int(unscaled) if is_small else 0
    if number != unscaled:
        raise InvalidValue(f"is {value}, which does not fit into decimal({scalar.precision}, {scalar.scale})")
    return number.to_bytes((number.bit_length() + 8) // 8, "big", signed=True)


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
                if id(shape) not in self._records:  # before its fields, because a record may contain itself
                    self._records[id(shape)], add = self._record(shape)
                    for field in shape.fields:
                        add(field, self._of_field(field))
                return self._records[id(shape)]
            case Union():
                return self._union(shape)
            case Array():
                return self._array(shape, self.of(shape.items))
            case Mapped():
                return self._mapped(self.of(shape.values))
            case Enumeration():
                return self._enumeration(shape)
            case Fixed():
                return self._scalar(PLAIN_BYTES)
        return self._scalar(shape)

    def _of_field(self, field: Field) -> Convert:
        try:
            return self.of(field.shape)
        except InvalidValue as error:
            raise error.within(f".{field.name}") from None

    def _scalar(self, scalar: Scalar) -> Convert:
        return to_plain(scalar)

    def _array(self, array: Array, convert: Convert) -> Convert:
        types = array.types
        return lambda values: convert_each(checked(values, types), convert)

    def _mapped(self, convert: Convert) -> Convert:
        return lambda values: convert_items(checked(values, dict), convert)

    def _enumeration(self, shape: Enumeration) -> Convert:
        kind, symbols = shape.type, shape.symbols

        def write(value: Enum) -> object:
            if checked(value, kind).name not in symbols:
                raise InvalidValue(f"is {value!r}, not a symbol of {shape.name}")
            return value.name

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

    def _record(self, record: Record) -> tuple[Convert, Callable[[Field, Convert], None]]:
        """Return the function for a record, and one that adds a field to it."""
        kind = record.type
        fields: list[tuple[str, attrgetter[object], Convert]] = []

        def write(value: object) -> dict[str, object]:
            checked(value, kind)
            try:
                return {name: convert(get(value)) for name, get, convert in fields}
            except InvalidValue:
                for name, get, convert in fields:  # again, to find the position of the error
                    try:
                        convert(get(value))
                    except InvalidValue as error:
                        raise error.within(f".{name}") from None
                raise

        return write, lambda field, convert: fields.append((field.name, attrgetter(field.attribute), convert))


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
