"""Payloads of Java's primitive schemas (pure): mirrors `BooleanSchema`, `InstantSchema`, `LocalDateSchema` and so on.

Points in time are datetimes in UTC; local dates and times have no time zone. Java has nanoseconds: where they are not
whole microseconds, the value is a `NanoDatetime` or a `NanoTime`.
"""

from __future__ import annotations

import struct
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any, Final, Self

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["PRIMITIVES", "NanoDatetime", "NanoTime"]

_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001  # of local times; those in UTC are given it
_EPOCH_DAY: Final = _EPOCH.toordinal()
_DAY_MILLIS: Final = 24 * 60 * 60 * 1000
_SECOND_NANOS: Final = 1_000_000_000


class NanoDatetime(datetime):
    """A datetime with nanoseconds beyond its microseconds, in `nanosecond`; it compares as a datetime without them."""

    nanosecond = 0

    @classmethod
    def of(cls, whole: datetime, nanosecond: int) -> Self:
        """Return a datetime with 1 to 999 nanoseconds more."""
        made = cls.combine(whole.date(), whole.timetz())
        made.nanosecond = nanosecond
        return made

    def __reduce_ex__(self, _: Any) -> Any:
        """Return what a copy is made of, in another process too."""
        return type(self).of, (datetime.combine(self.date(), self.timetz()), self.nanosecond)


class NanoTime(time):
    """A time with nanoseconds beyond its microseconds, in `nanosecond`; it compares as the time without them."""

    nanosecond = 0

    @classmethod
    def of(cls, whole: time, nanosecond: int) -> Self:
        """Return a time with 1 to 999 nanoseconds more."""
        made = cls(whole.hour, whole.minute, whole.second, whole.microsecond)
        made.nanosecond = nanosecond
        return made

    def __reduce_ex__(self, _: Any) -> Any:
        """Return what a copy is made of, in another process too."""
        return type(self).of, (time(self.hour, self.minute, self.second, self.microsecond), self.nanosecond)


def _numbers(form: str) -> Callable[[bytes], Any]:
    unpack = struct.Struct(form).unpack
    return lambda data: unpack(data)[0]


def _datetime(seconds: int, nanos: int, zone: Any = UTC) -> datetime:
    micros, rest = divmod(nanos, 1000)
    found = (_EPOCH + timedelta(seconds=seconds, microseconds=micros)).replace(tzinfo=zone)
    return NanoDatetime.of(found, rest) if rest else found


def _millis(data: bytes) -> datetime:
    (millis,) = struct.unpack(">q", data)
    return (_EPOCH + timedelta(milliseconds=millis)).replace(tzinfo=UTC)


def _sql_time(data: bytes) -> time:
    (millis,) = struct.unpack(">q", data)
    return (_EPOCH + timedelta(milliseconds=millis % _DAY_MILLIS)).time()


def _instant(data: bytes) -> datetime:
    return _datetime(*struct.unpack(">qi", data))


def _local_date(data: bytes) -> date:
    (days,) = struct.unpack(">q", data)
    return date.fromordinal(_EPOCH_DAY + days)


def _local_time(data: bytes) -> time:
    (nanos,) = struct.unpack(">q", data)
    found = _local(0, nanos)
    whole = found.time()
    return NanoTime.of(whole, found.nanosecond) if isinstance(found, NanoDatetime) else whole


def _local_datetime(data: bytes) -> datetime:
    return _local(*struct.unpack(">qq", data))


def _local(days: int, nanos: int) -> datetime:
    if not 0 <= nanos < _DAY_MILLIS * 1_000_000:
        raise ValueError(f"a day has no nanosecond {nanos}")
    return _datetime(days * 86_400 + nanos // _SECOND_NANOS, nanos % _SECOND_NANOS, None)


PRIMITIVES: Final[dict[str, Callable[[bytes], Any]]] = {
    "INT8": _numbers(">b"),
    "INT16": _numbers(">h"),
    "INT32": _numbers(">i"),
    "INT64": _numbers(">q"),
    "FLOAT": _numbers(">f"),
    "DOUBLE": _numbers(">d"),
    "BOOLEAN": _numbers("?"),
    "DATE": _millis,
    "TIMESTAMP": _millis,
    "TIME": _sql_time,
    "INSTANT": _instant,
    "LOCAL_DATE": _local_date,
    "LOCAL_TIME": _local_time,
    "LOCAL_DATE_TIME": _local_datetime,
}
"""What reads a payload, by the schema's type."""
