"""What `str()` of C++ messages shows, read for many messages at once (pure, on numpy).

It is the only place where the C++ client shows a message's own sequence id, and it has the id, publish time and size as
well: reading them there saves three calls and their objects for each message. It is written as

    Message(prod=NAME, seq=7, publish_time=1700000000000, payload_size=100, msg_id=(5,7,-1,3), props={})

and what is written in any other way is not read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["ReprColumns", "read_reprs"]

_PRODUCER, _SEQUENCE_ID = "Message(prod=", ", seq="
_TIME, _SIZE, _ID = b", publish_time=", b", payload_size=", b", msg_id=("
_NO_PROPERTIES = b", props={})"
_WORD = 8
_PADDING = " " * 64
"""Behind the last text, so that reading what follows a number never leaves the buffer."""
_MOST_DIGITS = 20
_COMMA, _MINUS, _CLOSE, _SEMICOLON = b",-);"


@dataclass
class ReprColumns:
    """What `str()` of messages shows, as arrays of one number for each message.

    For `chunked` messages, `ledger` and `entry` are those of the *first* chunk; `bare` messages have no properties.
    """

    sequence_id: Any
    publish_time: Any
    payload_size: Any
    ledger: Any
    entry: Any
    batch: Any
    chunked: Any
    bare: Any

    def take(self, indexes: Any) -> ReprColumns:
        """Give the numbers of some of the messages."""
        return ReprColumns(**{name: column[indexes] for name, column in vars(self).items()})


class _UnexpectedTextError(Exception):
    """A text is not written as expected."""


def read_reprs(texts: Sequence[str], producers: str | Sequence[str], partition: int) -> ReprColumns | None:
    """Read what `str()` of messages shows.

    Args:
        texts: `str()` of C++ messages; not empty.
        producers: the names of their producers: one for all, or one for each.
        partition: the index of the partition that they are from, -1 on a topic without partitions.

    Returns:
        None if any text is not written as expected, or is of another producer.
    """
    column = pa.array([*texts, _PADDING], pa.large_string())
    offsets = np.frombuffer(column.buffers()[1], np.int64, len(texts) + 2)
    data = np.frombuffer(column.buffers()[2], np.uint8)
    scan = _Scan(data, offsets[:-2].copy(), offsets[1:-1])
    try:
        if isinstance(producers, str):
            scan.literal(f"{_PRODUCER}{producers}{_SEQUENCE_ID}".encode())
        else:
            scan.literal(_PRODUCER.encode())
            names = {name: len(name.encode()) for name in set(producers)}
            scan.at += np.fromiter(map(names.__getitem__, producers), np.int64, len(texts))
            scan.literal(_SEQUENCE_ID.encode())
        sequence_id = scan.number()
        scan.literal(_TIME)
        publish_time = scan.number()
        scan.literal(_SIZE)
        payload_size = scan.number()
        scan.literal(_ID)
        ledger = scan.number()
        scan.literal(b",")
        entry = scan.number()
        scan.literal(b",%d," % partition)
        batch = scan.number_or_minus_one()
        scan.literal(b")")
    except _UnexpectedTextError:
        return None
    follows = data[scan.at]
    if ((follows != _COMMA) & (follows != _SEMICOLON)).any():
        return None
    return ReprColumns(
        sequence_id,
        publish_time,
        payload_size,
        ledger,
        entry,
        batch.astype(np.int32),
        chunked=follows == _SEMICOLON,
        bare=scan.at + len(_NO_PROPERTIES) == offsets[1:-1],
    )


class _Scan:
    """A place in each of many texts, which moves on as they are read."""

    def __init__(self, data: Any, at: Any, ends: Any) -> None:
        self._data = data
        # Eight bytes from each place on, as one number.
        self._words = np.ndarray((len(data) - _WORD + 1,), np.uint64, data, strides=(1,))
        self.at = at
        self._ends = ends

    def literal(self, wanted: bytes) -> None:
        """Pass over these bytes.

        Raises:
            _UnexpectedTextError: other bytes are there.
        """
        if (self.at + len(wanted) > self._ends).any():
            raise _UnexpectedTextError
        if len(wanted) < _WORD:
            for index, octet in enumerate(wanted):
                self._expect(self._data, index, octet)
        else:
            # The last word reaches back to the end of the one before.
            for index in (*range(0, len(wanted) - _WORD, _WORD), len(wanted) - _WORD):
                self._expect(self._words, index, np.frombuffer(wanted, np.uint64, 1, index)[0])
        self.at += len(wanted)

    def _expect(self, data: Any, offset: int, wanted: Any) -> None:
        if (data[self.at + offset] != wanted).any():
            raise _UnexpectedTextError

    def number(self) -> Any:
        """Read decimal numbers.

        Returns:
            The numbers; those of more than 63 bits are negative, as in Java.

        Raises:
            _UnexpectedTextError: no digit is there, or more digits than a number of 64 bits has.
        """
        numbers = np.zeros(len(self.at), np.int64)
        going: Any = None
        for index in range(_MOST_DIGITS + 1):
            digits = self._data[self.at] - np.uint8(ord("0"))
            here = digits <= 9  # noqa: PLR2004  # a digit
            if going is not None:
                here &= going
            if here.all():
                numbers *= 10
                numbers += digits
                self.at += 1
                continue
            if not index:
                raise _UnexpectedTextError
            if not here.any():
                return numbers
            going = here
            numbers = np.where(here, numbers * 10 + digits, numbers)
            self.at += here
        raise _UnexpectedTextError

    def number_or_minus_one(self) -> Any:
        """Read decimal numbers or -1.

        Raises:
            _UnexpectedTextError: neither is there.
        """
        negative = self._data[self.at] == _MINUS
        self.at += negative
        numbers = self.number()
        return np.where(negative, -numbers, numbers)
