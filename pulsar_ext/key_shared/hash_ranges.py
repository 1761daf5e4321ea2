"""Ranges of key slots, sets of them (pure), and a filter of messages by slot.

The broker hashes the key of a message to one of 65,536 slots. A key hash range, of a reader or of a sticky Key_Shared
consumer, is a range of slots. Mirrors `org.apache.pulsar.client.api.Range`. `SlotFilter` accepts or rejects one native
message by its own key, also inside a batch; a `FilteredSource` (`receive/filter.py`) calls it for each message.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Self

from pulsar_ext._native.messages import InnerMessage, sequence_id_of
from pulsar_ext._wire.batch_payload import bytes_of_base64
from pulsar_ext.errors import InvalidKeyHashRange, InvalidUse

from .hashing import LAST, SLOTS, KeyForm, KeyForms, key_slot, sticky_key

_RANGE = re.compile(r"\s*\[?\s*(-?\d{1,9})\s*[-,]\s*(-?\d{1,9})\s*\]?\s*", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class KeyHashRange:
    """A range of slots, both ends included; Java's `Range`.

    Args:
        start: the first slot, 0 or more.
        end: the last slot, 65,535 or less.

    Raises:
        InvalidKeyHashRange: the end is before the start, or a slot is not an int from 0 to 65,535.
    """

    start: int
    end: int

    def __post_init__(self) -> None:
        for slot in (self.start, self.end):
            if isinstance(slot, bool) or not isinstance(slot, int):
                raise InvalidKeyHashRange(f"A slot must be an int from 0 to {LAST}, got {slot!r}.")
        if self.end < self.start:
            raise InvalidKeyHashRange(
                f"Range end must >= range start, but the range is [{self.start}, {self.end}]; to wrap around, pass two "
                f"ranges: [{self.start}, {LAST}] and [0, {self.end}]."
            )
        if self.start < 0 or self.end > LAST:
            raise InvalidKeyHashRange(
                f"Ranges must be [0, {LAST}] but provided range is [{self.start}, {self.end}]; both ends are included."
            )

    @classmethod
    def of(cls, start: int, end: int) -> Self:
        """Return a range; Java's `Range.of`."""
        return cls(start, end)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the range of a text: `0-10000`, or Java's `[0, 10000]`.

        Raises:
            InvalidKeyHashRange: the text has another format, or the range is invalid.
        """
        match = _RANGE.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            raise InvalidKeyHashRange(f"{text!r} is not a range of slots; write it as '0-10000'.")
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return f"{self.start}-{self.end}"

    def __len__(self) -> int:
        return self.end - self.start + 1

    def __contains__(self, slot: object) -> bool:
        return isinstance(slot, int) and self.start <= slot <= self.end

    def overlaps(self, other: KeyHashRange) -> bool:
        """Return whether the ranges have a slot in common."""
        return self.start <= other.end and other.start <= self.end


RangesLike = Iterable[KeyHashRange | tuple[int, int] | str]
"""Ranges as an argument: each a `KeyHashRange`, a pair of slots, or a text such as `0-10000`."""


class KeyHashRanges:
    """A set of slots, as sorted ranges that neither overlap nor touch.

    Args:
        ranges: one or more, in any order.

    Raises:
        InvalidKeyHashRange: the ranges are empty or overlap, or one is invalid.
    """

    __slots__ = ("_ranges", "_starts")

    _ranges: tuple[KeyHashRange, ...]
    _starts: tuple[int, ...]

    def __init__(self, ranges: RangesLike) -> None:
        if isinstance(ranges, str | KeyHashRange):
            raise InvalidKeyHashRange(f"Expected a list of ranges, got {ranges!r}: put it in a list.")
        found = sorted(map(_as_range, ranges))
        if not found:
            raise InvalidKeyHashRange("Ranges must not be empty; use KeyHashRanges.full() for every slot.")
        for one, two in pairwise(found):
            if one.overlaps(two):
                raise InvalidKeyHashRange(
                    f"Ranges with overlap between [{one.start}, {one.end}] and [{two.start}, {two.end}]; both ends of "
                    "a range are included."
                )
        self._set(found)

    @classmethod
    def full(cls) -> Self:
        """Return the set of every slot."""
        return cls([KeyHashRange(0, LAST)])

    @classmethod
    def empty(cls) -> Self:
        """Return the empty set; set operations may produce it, but readers and consumers reject it."""
        return cls._of(())

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the set of a text of ranges separated by commas, such as `0-10000,20001-30000`; inverse of `str()`.

        Raises:
            InvalidKeyHashRange: the text or a range in it is invalid.
        """
        return cls(map(KeyHashRange.parse, text.split(",")))

    @classmethod
    def _of(cls, ranges: Iterable[KeyHashRange]) -> Self:
        self = cls.__new__(cls)
        self._set(ranges)
        return self

    def _set(self, ranges: Iterable[KeyHashRange]) -> None:
        merged: list[KeyHashRange] = []
        for one in ranges:
            if merged and merged[-1].end + 1 == one.start:
                merged[-1] = KeyHashRange(merged[-1].start, one.end)
            else:
                merged.append(one)
        self._ranges = tuple(merged)
        self._starts = tuple(one.start for one in merged)

    def __iter__(self) -> Iterator[KeyHashRange]:
        return iter(self._ranges)

    def __len__(self) -> int:
        return len(self._ranges)

    def __eq__(self, other: object) -> bool:
        return self._ranges == other._ranges if isinstance(other, KeyHashRanges) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._ranges)

    def __str__(self) -> str:
        return ",".join(map(str, self._ranges))

    def __repr__(self) -> str:
        return f"KeyHashRanges.parse({str(self)!r})" if self._ranges else "KeyHashRanges.empty()"

    def __contains__(self, slot: object) -> bool:
        return isinstance(slot, int) and self.contains(slot)

    def contains(self, slot: int) -> bool:
        """Return whether the slot is in the set."""
        at = bisect_right(self._starts, slot) - 1
        return at >= 0 and slot <= self._ranges[at].end

    def contains_key(self, key: str | bytes) -> bool:
        """Return whether the key's slot is in the set."""
        return self.contains(key_slot(key))

    @property
    def slots(self) -> int:
        """Number of slots in the set."""
        return sum(map(len, self._ranges))

    @property
    def is_full(self) -> bool:
        """True if every slot is in the set."""
        return self.slots == SLOTS

    @property
    def is_empty(self) -> bool:
        """True if the set is empty."""
        return not self._ranges

    def complement(self) -> KeyHashRanges:
        """Return the set of all other slots."""
        starts = (0, *(one.end + 1 for one in self._ranges))
        ends = (*(one.start - 1 for one in self._ranges), LAST)
        return self._of(KeyHashRange(start, end) for start, end in zip(starts, ends, strict=True) if start <= end)

    def __and__(self, other: KeyHashRanges) -> KeyHashRanges:
        common: list[KeyHashRange] = []
        for one in self._ranges:
            first = max(0, bisect_right(other._starts, one.start) - 1)
            near = other._ranges[first : bisect_right(other._starts, one.end)]
            common.extend(
                KeyHashRange(max(one.start, two.start), min(one.end, two.end)) for two in near if one.overlaps(two)
            )
        return self._of(common)

    def __sub__(self, other: KeyHashRanges) -> KeyHashRanges:
        return self & other.complement()

    def __or__(self, other: KeyHashRanges) -> KeyHashRanges:
        return (self.complement() & other.complement()).complement()

    def overlaps(self, other: KeyHashRanges) -> bool:
        """Return whether the sets have a slot in common."""
        return not (self & other).is_empty

    def split(self, n: int) -> list[KeyHashRanges]:
        """Split the set into `n` sets of neighbouring slots; their sizes differ by at most one.

        Raises:
            InvalidUse: `n` is less than 1, or exceeds the number of slots.
        """
        total = self.slots
        check_parts(n, total)
        sizes = list(accumulate(map(len, self._ranges), initial=0))

        def slot_at(index: int) -> int:
            at = bisect_right(sizes, index) - 1
            return self._starts[at] + index - sizes[at]

        cuts = [total * part // n for part in range(n + 1)]
        # The single range is on the left, because `&` iterates over the ranges of its left side.
        return [
            KeyHashRanges([KeyHashRange(slot_at(first), slot_at(after - 1))]) & self for first, after in pairwise(cuts)
        ]


def check_parts(n: int, most: int) -> None:
    """Raise if `n` is an invalid number of parts."""
    if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= most:
        raise InvalidUse(f"{most} slots can be split into 1 to {most} parts, got {n!r}.")


def _as_range(one: KeyHashRange | tuple[int, int] | str) -> KeyHashRange:
    if isinstance(one, KeyHashRange):
        return one
    if isinstance(one, str):
        return KeyHashRange.parse(one)
    try:
        start, end = one
    except (TypeError, ValueError):
        raise InvalidKeyHashRange(f"{one!r} is not a range of slots; pass KeyHashRange(start, end).") from None
    return KeyHashRange(start, end)


ALL = KeyHashRange(0, LAST)


def as_ranges(ranges: RangesLike | KeyHashRanges) -> KeyHashRanges:
    """Return the set of ranges of an argument."""
    try:
        found = ranges if isinstance(ranges, KeyHashRanges) else KeyHashRanges(ranges)
    except TypeError:
        raise InvalidKeyHashRange(f"Expected a list of ranges of slots, got {ranges!r}.") from None
    if found.is_empty:
        raise InvalidKeyHashRange("Ranges must not be empty: the reader or consumer would never receive a message.")
    return found


_MAX_CACHED = 100_000


class SlotFilter:
    """Filter of native messages by slot; `decided` caches results by key, for messages without an ordering key."""

    __slots__ = ("_forms", "decided", "ranges")

    def __init__(self, ranges: KeyHashRanges, forms: KeyForms) -> None:
        self.ranges = ranges
        self._forms = forms
        self.decided: dict[str, bool] = {}

    def __call__(self, inner: InnerMessage) -> bool:
        """Return whether the message's slot is in the set."""
        try:
            if not inner.ordering_key():
                known = self.decided.get(inner.partition_key())
                if known is not None:
                    return known
        except UnicodeDecodeError:
            pass
        return self._decide(inner)

    def slot(self, inner: InnerMessage) -> int:
        """Return the message's slot; this always resolves the form of an ambiguous key."""
        first, second = _candidates(inner)
        return first if second in (None, first) else self._resolve(inner, first, second)

    def _decide(self, inner: InnerMessage) -> bool:
        first, second = _candidates(inner)
        wanted = self.ranges.contains(first)
        if second is not None and self.ranges.contains(second) is not wanted and self._forms.asks:
            return self.ranges.contains(self._resolve(inner, first, second))
        key = inner.partition_key()
        if key and not _ordering_key(inner):
            if len(self.decided) >= _MAX_CACHED:
                self.decided.clear()
            self.decided[key] = wanted
        return wanted

    def _resolve(self, inner: InnerMessage, first: int, second: int | None) -> int:
        key = inner.partition_key()
        form = self._forms.form_of(inner, key)
        usual = KeyForm.TEXT if key else KeyForm.NONE
        return first if form is usual or second is None else second


def _ordering_key(inner: InnerMessage) -> bytes:
    try:
        return inner.ordering_key().encode()
    except UnicodeDecodeError as error:
        return error.object  # an ordering key may be any bytes


def _candidates(inner: InnerMessage) -> tuple[int, int | None]:
    """Return the slot by the apparent form of the key, and by its other possible form: base64, or an empty key."""
    ordering = _ordering_key(inner)
    if ordering:
        return key_slot(ordering), None
    key = inner.partition_key()
    if key:
        other = bytes_of_base64(key)
        return key_slot(key), None if other is None else key_slot(other)
    producer = inner.producer_name()
    sticky = sticky_key(None, producer_name=producer, sequence_id=sequence_id_of(inner, producer))
    return key_slot(sticky), key_slot(b"")
