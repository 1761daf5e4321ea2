"""What a model's annotations may say about a field besides its Python type: `Annotated[int, AvroType("int")]`."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Annotated, Final

__all__ = [
    "AvroName",
    "AvroType",
    "Float32",
    "Int32",
    "LocalTimestamp",
    "TimeMillis",
    "TimestampMillis",
    "decimal_type",
]


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
