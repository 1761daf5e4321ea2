"""Shapes: what a type is on the wire, and what is made of it in Python; of scalars the values, both ways (pure).

A shape comes from a model (`models.py`) or an Avro definition (`avro_definition.py`). Everything else walks shapes:
the definition that the topic gets, values to bytes, and what another version of the schema wrote to values.

Logical types are converted here and not by fastavro: it takes a time without a zone for the machine's own, and leaves
defaults as they are written.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@dataclass(frozen=True, slots=True)
class Scalar:
    """A primitive Avro type.

    Args:
        type: its name.
        logical: its logical type, or the Java class that text is of.
        precision: of a `decimal`.
        scale: of a `decimal`.
        texts: the only ones that it may be; empty for any.
    """

    type: str
    logical: str | None = None
    precision: int = 0
    scale: int = 0
    texts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Fixed:
    """So many bytes; `meaning` is the scalar that they are, of a `decimal`."""

    name: str
    size: int
    meaning: Scalar | None = None


@dataclass(frozen=True, slots=True)
class Enumeration:
    """An enumeration: the Python value of each symbol, and the symbol that unknown ones are read as."""

    name: str
    symbols: Mapping[str, Any]
    default: str | None
    type: type[Any]


@dataclass(frozen=True, slots=True)
class Array:
    """A sequence; `make` makes the Python one of an iterable, `types` are the Python types that are written as one."""

    items: Shape
    make: Callable[[Any], Any]
    types: tuple[type[Any], ...]


@dataclass(frozen=True, slots=True)
class Mapped:
    """A mapping of text to values."""

    values: Shape


@dataclass(frozen=True, slots=True)
class Union:
    """One of several shapes."""

    branches: tuple[Shape, ...]

    @property
    def is_nullable(self) -> bool:
        """Whether null is one of them."""
        return Scalar("null") in self.branches


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a record.

    Args:
        name: on the wire.
        attribute: of the Python object.
        shape: of its values.
        default: gives the value of a field that is missing; None if it must not be missing.
        aliases: older names.
        parameter: what the Python class takes it as.
    """

    name: str
    attribute: str
    shape: Shape
    default: Callable[[], Any] | None = None
    aliases: tuple[str, ...] = ()
    parameter: str = ""


@dataclass(eq=False, slots=True)
class Record:
    """A record; it may contain itself, so its fields are added when there is one.

    Args:
        name: its full name on the wire.
        type: the Python class.
        fields: in their order.
        aliases: older names.
    """

    name: str
    type: type[Any]
    fields: list[Field] = field(default_factory=list)
    aliases: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Record({self.name!r}, {[one.name for one in self.fields]})"


Named: TypeAlias = Record | Enumeration | Fixed
Shape: TypeAlias = Scalar | Fixed | Enumeration | Array | Mapped | Union | Record


def name_of(shape: Shape) -> str:
    """Give what Avro calls a shape as a branch of a union."""
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


PLAIN_BYTES: Final = Scalar("bytes")
"""Bytes, which JSON has in base64."""
TEXT_BYTES: Final = Scalar("bytes", "text")
TEXT_OR_BASE64: Final = Scalar("bytes", "text-or-base64")
"""Bytes that JSON has as text, and the second ones in base64 if they are no text. Definitions say so by a logical type,
which others do not know and leave alone."""

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_LOCAL_EPOCH: Final = dt.datetime(1970, 1, 1)  # noqa: DTZ001  # without a zone by design
_DAY_ONE: Final = dt.date(1970, 1, 1).toordinal()
_DAY_MICROS: Final = 86_400_000_000
_MICROSECOND: Final = dt.timedelta(microseconds=1)
_NANOS: Final = 1_000
_UNITS: Final = {"millis": 1_000, "micros": 1}
"""How many microseconds a unit is."""

PYTHON_TYPES: Final[dict[str, type[Any]]] = {
    "null": type(None),
    "boolean": bool,
    "int": int,
    "long": int,
    "float": float,
    "double": float,
    "string": str,
    "bytes": bytes,
}
_LOGICAL_TYPES: Final[dict[str, type[Any]]] = {
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
"""From where on a finite number would be written as infinity."""

_PROMOTIONS: Final = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
"""What Avro reads a type as, besides itself."""


class Unfit(Exception):  # noqa: N818  # never leaves the package
    """A value does not fit its shape; `path` says where it is."""

    def __init__(self, why: str, path: str = "") -> None:
        super().__init__(f"{path} {why}".strip())
        self.why, self.path = why, path

    def within(self, place: str) -> Unfit:
        """Give the same, seen from further outside."""
        return type(self)(self.why, place + self.path)


class NoText(Unfit):
    """Bytes are no text where JSON has them as text."""


def _family(scalar: Scalar) -> str | None:
    """Give what kind of logical type it is, whatever its unit; None if it is none that is known here."""
    name = scalar.logical or ""
    stem, _, unit = name.rpartition("-")
    family = stem if unit in ("millis", "micros", "nanos") else name
    return family if family in _LOGICAL_TYPES else None


def _micros_per_unit(scalar: Scalar) -> int:
    return _UNITS.get((scalar.logical or "").rpartition("-")[2], 0)  # 0: nanoseconds


def python_type(scalar: Scalar) -> type[Any]:
    """Give the Python type of a scalar."""
    family = _family(scalar)
    return PYTHON_TYPES[scalar.type] if family is None else _LOGICAL_TYPES[family]


def to_plain(scalar: Scalar) -> Callable[[Any], Any]:
    """Make what checks a Python value and turns it into what plain Avro has for it; it raises `Unfit`."""
    family, kind = _family(scalar), python_type(scalar)
    if family is not None:
        convert = _logical_to_plain(family, scalar)

        def logical(value: Any) -> Any:
            if not isinstance(value, kind) or (family == "date" and isinstance(value, dt.datetime)):
                raise Unfit(f"is {_shown(value)}, not {kind.__name__}")
            return convert(value)

        return logical
    if scalar.type in _BOUNDS:
        return _bounded(scalar.type)
    if scalar.type in ("float", "double"):
        return _float_of(scalar.type)
    if kind is str:
        return checked_text

    def plain(value: Any) -> Any:
        if type(value) is kind or isinstance(value, kind):
            return value
        raise Unfit(f"is {_shown(value)}, not {kind.__name__}")

    return plain


def is_readable(scalar: Scalar, written: Scalar) -> bool:
    """Whether what was written as one scalar can be read as another one, and means the same.

    Avro itself does not look at logical types: it would read milliseconds as microseconds, any number or text as a time
    or an id, and the digits of a decimal as text.
    """
    if scalar.type != written.type and scalar.type not in _PROMOTIONS.get(written.type, ()):
        return False
    family, other = _family(scalar), _family(written)
    if family is None:
        return scalar.type == written.type or other != "decimal"
    return family == other or {family, other} <= _DECIMALS


def from_plain(scalar: Scalar, written: Scalar, path: str) -> Callable[[Any], Any] | None:
    """Make what turns what plain Avro has read into a Python value; None if it is one already.

    Args:
        scalar: what is read.
        written: what it was written as, readable as that.
        path: where it is, for `Unfit`.
    """
    family = _family(scalar)
    if family is not None:
        return _careful(_logical_from_plain(family, written), _LOGICAL_TYPES[family], path)
    if scalar.type in ("float", "double") and written.type in ("int", "long"):
        return float
    if scalar.type == written.type:
        return None
    if scalar.type == "string":
        return _careful(bytes.decode, str, path)
    return str.encode if scalar.type == "bytes" else None


_DECIMALS: Final = {"decimal", "java.math.BigDecimal"}


def _logical_to_plain(family: str, scalar: Scalar) -> Callable[[Any], Any]:
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
    return str if family == "uuid" else _decimal_text


def _logical_from_plain(family: str, written: Scalar) -> Callable[[Any], Any]:  # noqa: PLR0911  # one for each
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
            return lambda number: _time_of(micros(number))
        case "uuid":
            return uuid.UUID
    if written.type == "string":
        return decimal.Decimal
    scale = written.scale
    return lambda data: decimal.Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-scale, _EXACT)


_EXACT: Final = decimal.Context(prec=decimal.MAX_PREC, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)


def _careful(convert: Callable[[Any], Any], kind: type[Any], path: str) -> Callable[[Any], Any]:
    def careful(value: Any) -> Any:
        try:
            return convert(value)
        except (ValueError, OverflowError, ArithmeticError):
            raise Unfit(f"is {_shown(value)}, which is no {kind.__name__} here", path) from None

    return careful


def _shown(value: Any) -> str:
    shown = repr(value)
    return f"{type(value).__name__} {shown if len(shown) <= 60 else shown[:60] + '…'}"  # noqa: PLR2004


def _bounded(name: str) -> Callable[[Any], int]:
    bound = _BOUNDS[name]

    def bounded(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise Unfit(f"is {_shown(value)}, not an int")
        if not -bound <= value < bound:
            raise Unfit(f"is {value}, beyond Avro's {name}")
        return value

    return bounded


def _float_of(name: str) -> Callable[[Any], float]:
    bound = _FLOAT_BOUNDS[name]

    def as_float(value: Any) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise Unfit(f"is {_shown(value)}, not a float")
        try:
            found = value if isinstance(value, float) else float(value)
        except OverflowError:
            raise Unfit(f"is an int beyond Avro's {name}") from None
        if -bound < found < bound or not math.isfinite(found):
            return found
        raise Unfit(f"is {value}, beyond Avro's {name}")

    return as_float


def checked_text(value: Any) -> str:
    """Give back a text that can be written as UTF-8, or raise `Unfit`."""
    if not isinstance(value, str):
        raise Unfit(f"is {_shown(value)}, not a str")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise Unfit(f"is {_shown(value)}, which is no UTF-8: {error.reason}") from None
    return value


def _finite(value: decimal.Decimal) -> decimal.Decimal:
    if not value.is_finite():
        raise Unfit(f"is {value}, which is no decimal number")
    return value


def _decimal_text(value: decimal.Decimal) -> str:
    return str(_finite(value))


def _zoned(value: dt.datetime) -> dt.datetime:
    if value.tzinfo is None:
        raise Unfit(f"is {value.isoformat()}, without a time zone: give it one, or annotate the field LocalTimestamp")
    return value


def _unzoned(value: dt.datetime) -> dt.datetime:
    if value.tzinfo is not None:
        raise Unfit(f"is {value.isoformat()}, with a time zone, which a local timestamp has not")
    return value


def _time_micros(value: dt.time) -> int:
    if value.tzinfo is not None:
        raise Unfit(f"is {value.isoformat()}, with a time zone, which Avro's time of day has not")
    return ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond


def _time_of(micros: int) -> dt.time:
    seconds, micros = divmod(micros % _DAY_MICROS, 1_000_000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return dt.time(hours, minutes, seconds, micros)


def _unscaled_bytes(value: decimal.Decimal, scalar: Scalar) -> bytes:
    unscaled = _finite(value).scaleb(scalar.scale, _EXACT)
    is_small = not value or unscaled.adjusted() < scalar.precision  # as an int, others may have a billion digits
    number = int(unscaled) if is_small else 0
    if number != unscaled:
        raise Unfit(f"is {value}, which does not fit into decimal({scalar.precision}, {scalar.scale})")
    return number.to_bytes((number.bit_length() + 8) // 8, "big", signed=True)
