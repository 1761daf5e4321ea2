"""What the C++ client says of a message in its text, read for many messages at once (pure, on numpy).

The text is the only place where a message's own sequence id is shown, and its id, publish time and size stand beside
it: reading them there spares three calls and their objects for each message. It is written as

    Message(prod=NAME, seq=7, publish_time=1700000000000, payload_size=100, msg_id=(5,7,-1,3), props={})

and whatever does not look so is left to the calls.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Told", "read_texts"]

_HEAD, _SEQUENCE = "Message(prod=", ", seq="
_TIME, _SIZE, _ID = b", publish_time=", b", payload_size=", b", msg_id=("
_BARE = b", props={})"
_WORD = 8
_PADDING = " " * 64
"""Behind the last text, so that looking at what follows a number stays inside."""
_LONGEST = 20
_COMMA, _MINUS, _CLOSE, _SEMICOLON = b",-);"


@dataclass
class Told:
    """What texts tell, as arrays of one number for each message.

    `chunked` messages have the ledger and entry of their *first* chunk here; `bare` ones have no properties.
    """

    sequence: Any
    publish_time: Any
    size: Any
    ledger: Any
    entry: Any
    batch: Any
    chunked: Any
    bare: Any

    def take(self, at: Any) -> Told:
        """Give what is told of some of the messages."""
        return Told(**{name: value[at] for name, value in vars(self).items()})


class _UnlikeError(Exception):
    """A text does not look as expected."""


def read_texts(texts: Sequence[str], producers: str | Sequence[str], partition: int) -> Told | None:
    """Read the texts of messages.

    Args:
        texts: `str()` of C++ messages; not empty.
        producers: the names of their producers: one for all, or one each.
        partition: the index of the partition that they are from, -1 on a topic without partitions.

    Returns:
        None if any of them looks otherwise, such as having another producer.
    """
    column = pa.array([*texts, _PADDING], pa.large_string())
    offsets = np.frombuffer(column.buffers()[1], np.int64, len(texts) + 2)
    data = np.frombuffer(column.buffers()[2], np.uint8)
    reading = _Reading(data, offsets[:-2].copy(), offsets[1:-1])
    try:
        if isinstance(producers, str):
            reading.literal(f"{_HEAD}{producers}{_SEQUENCE}".encode())
        else:
            reading.literal(_HEAD.encode())
            names = {name: len(name.encode()) for name in set(producers)}
            reading.at += np.fromiter(map(names.__getitem__, producers), np.int64, len(texts))
            reading.literal(_SEQUENCE.encode())
        sequence = reading.number()
        reading.literal(_TIME)
        publish_time = reading.number()
        reading.literal(_SIZE)
        size = reading.number()
        reading.literal(_ID)
        ledger = reading.number()
        reading.literal(b",")
        entry = reading.number()
        reading.literal(b",%d," % partition)
        batch = reading.number_or_none()
        reading.literal(b")")
    except _UnlikeError:
        return None
    follows = data[reading.at]
    if ((follows != _COMMA) & (follows != _SEMICOLON)).any():
        return None
    return Told(
        sequence,
        publish_time,
        size,
        ledger,
        entry,
        batch.astype(np.int32),
        follows == _SEMICOLON,
        reading.at + len(_BARE) == offsets[1:-1],
    )


class _Reading:
    """A place in each text, which moves on."""

    def __init__(self, data: Any, at: Any, ends: Any) -> None:
        self._data = data
        # Eight bytes from each place on, as one number.
        self._words = np.ndarray((len(data) - _WORD + 1,), np.uint64, data, strides=(1,))
        self.at = at
        self._ends = ends

    def literal(self, wanted: bytes) -> None:
        """Pass over these bytes.

        Raises:
            _UnlikeError: others are there.
        """
        if (self.at + len(wanted) > self._ends).any():
            raise _UnlikeError
        if len(wanted) < _WORD:
            for index, octet in enumerate(wanted):
                self._expect(self._data, index, octet)
        else:
            # The last word reaches back to the end of the one before.
            for index in (*range(0, len(wanted) - _WORD, _WORD), len(wanted) - _WORD):
                self._expect(self._words, index, np.frombuffer(wanted, np.uint64, 1, index)[0])
        self.at += len(wanted)

    def _expect(self, of: Any, further: int, wanted: Any) -> None:
        if (of[self.at + further] != wanted).any():
            raise _UnlikeError

    def number(self) -> Any:
        """Pass over decimal digits.

        Raises:
            _UnlikeError: there is none, or more than 64 bits have. A number beyond 63 bits is negative, as in Java.
        """
        numbers = np.zeros(len(self.at), np.int64)
        going: Any = None
        for index in range(_LONGEST + 1):
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
                raise _UnlikeError
            if not here.any():
                return numbers
            going = here
            numbers = np.where(here, numbers * 10 + digits, numbers)
            self.at += here
        raise _UnlikeError

    def number_or_none(self) -> Any:
        """Pass over decimal digits, or over -1.

        Raises:
            _UnlikeError: neither is there.
        """
        none = self._data[self.at] == _MINUS
        self.at += none
        numbers = self.number()
        return np.where(none, -numbers, numbers)
