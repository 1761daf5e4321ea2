"""Whether a message is in some slots: each by its own key, whatever batch it came in.

`SlotFilter` decides about one C++ message; a `FilteredSource` (`receive/filter.py`) asks it about each that comes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pulsar_ext._native.messages import sequence_id_of
from pulsar_ext._wire.batch_payload import bytes_of_base64

from .hashing import key_slot, sticky_key
from .key_encoding import KeyForm

if TYPE_CHECKING:
    from .hash_ranges import KeyHashRanges
    from .key_encoding import KeyForms

__all__ = ["SlotFilter"]

_REMEMBERED = 100_000


class SlotFilter:
    """Decides whether a C++ message's slot is in a set.

    Args:
        ranges: the set.
        forms: finds out what a key is, where that decides.

    `decided` remembers what was decided about a key without an ordering key; it is emptied when it has grown large.
    """

    __slots__ = ("_forms", "decided", "ranges")

    def __init__(self, ranges: KeyHashRanges, forms: KeyForms) -> None:
        self.ranges = ranges
        self._forms = forms
        self.decided: dict[str, bool] = {}

    def __call__(self, inner: Any) -> bool:
        """Whether the message's slot is in the set.

        Raises:
            AdminError, InvalidUse: as `KeyForms.form_of`.
        """
        try:
            if not inner.ordering_key():
                known = self.decided.get(inner.partition_key())
                if known is not None:
                    return known
        except UnicodeDecodeError:
            pass
        return self._decide(inner)

    def slot(self, inner: Any) -> int:
        """Compute the message's slot, which always asks for the form of a key that may have two.

        Raises:
            AdminError, InvalidUse: as `KeyForms.form_of`.
        """
        first, second = _candidates(inner)
        return first if second in (None, first) else self._settle(inner, first, second)

    def _decide(self, inner: Any) -> bool:
        first, second = _candidates(inner)
        wanted = self.ranges.contains(first)
        if second is not None and self.ranges.contains(second) is not wanted and self._forms.asks:
            return self.ranges.contains(self._settle(inner, first, second))
        key = inner.partition_key()
        if key and not _ordering_key(inner):
            if len(self.decided) >= _REMEMBERED:
                self.decided.clear()
            self.decided[key] = wanted
        return wanted

    def _settle(self, inner: Any, first: int, second: int | None) -> int:
        key = inner.partition_key()
        form = self._forms.form_of(inner, key)
        usual = KeyForm.TEXT if key else KeyForm.NONE
        return first if form is usual or second is None else second


def _ordering_key(inner: Any) -> bytes:
    try:
        text: str = inner.ordering_key()
    except UnicodeDecodeError as error:
        return error.object  # an ordering key may be any bytes
    return text.encode()


def _candidates(inner: Any) -> tuple[int, int | None]:
    """Give the slot of what the key looks like, and the slot of what else it may be: base64, or an empty key."""
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
