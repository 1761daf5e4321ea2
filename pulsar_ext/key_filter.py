"""Keep the messages of some slots: each by its own key, whatever batch it came in.

`SlotFilter` decides about one C++ message; `Filtered` stands where a receive loop's source stands and hands on only
what is wanted. No message is lost to a Ctrl-C or an error in between: it is looked at again by the next receive.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from ._official import POLL_MILLIS, Timeout
from .errors import MisroutedMessage
from .key_forms import KeyForm, bytes_of_base64
from .keys import key_slot, sticky_key

if TYPE_CHECKING:
    from .key_forms import KeyForms
    from .keys import KeyHashRanges

__all__ = ["Filtered", "SlotFilter", "take_over"]

T = TypeVar("T")

_REMEMBERED = 100_000
_LOOK_AT_CLOCK = 256


def _sequence_id(inner: Any, producer: str) -> int:
    """Read the message's own sequence id, which the C++ client only shows in a message's text."""
    rest = str(inner)[len("Message(prod=") + len(producer) + len(", seq=") :]
    return int(rest[: rest.index(",")])


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
    return key_slot(sticky_key(None, producer_name=producer, sequence_id=_sequence_id(inner, producer))), key_slot(b"")


class Filtered(Iterator[Any]):
    """What a receive loop takes its C++ messages from: an endless iterator, and a call with a timeout.

    Args:
        source: the endless iterator that waits for messages; raises `pulsar.Timeout` when none came within 100 ms, as
            this one does when none was wanted.
        call: the wait with a timeout in milliseconds.
        wanted: whether to hand on a C++ message.

    `passed_by` counts the messages that were not wanted; `kept` holds what earlier calls left behind.
    """

    __slots__ = ("_call", "_ready", "_source", "_unseen", "_wanted", "kept", "passed_by")

    def __init__(self, source: Iterator[Any], call: Callable[[int], Any], wanted: Callable[[Any], bool]) -> None:
        self._source = source
        self._call = call
        self._wanted = wanted
        self._ready: deque[Any] = deque()
        self._unseen: deque[Any] = deque()
        self.kept = self._ready, self._unseen
        self.passed_by = 0

    def __next__(self) -> Any:
        if self._ready or self._unseen:
            found = self._kept()
            if found is not None:
                return found
        began = 0.0
        for inner in self._source:
            try:
                if self._wanted(inner):
                    return inner
            except MisroutedMessage:
                raise  # it carries the message
            except BaseException:
                self._unseen.append(inner)
                raise
            self.passed_by += 1
            if not self.passed_by % _LOOK_AT_CLOCK:
                now = time.monotonic()
                began = began or now
                if now - began > POLL_MILLIS / 1000:
                    raise Timeout("Pulsar error: TimeOut")
        raise StopIteration

    def __call__(self, millis: int) -> Any:
        """Wait for a wanted message.

        Raises:
            pulsar.Timeout: none came in time.
        """
        found = self._kept()
        if found is not None:
            return found
        deadline = time.monotonic() + millis / 1000
        while True:
            for inner in map(self._call, (millis,)):
                try:
                    if self._wanted(inner):
                        return inner
                    self.passed_by += 1
                except MisroutedMessage:
                    raise  # it carries the message
                except BaseException:
                    self._unseen.append(inner)
                    raise
            millis = int((deadline - time.monotonic()) * 1000)
            if millis <= 0:
                raise Timeout("Pulsar error: TimeOut")

    def wants(self, inner: Any) -> bool:
        """Whether a C++ message is wanted, which is counted if it is not."""
        wanted = self._wanted(inner)
        self.passed_by += not wanted
        return wanted

    def peek(self) -> bool:
        """Wait for a wanted message and keep it for the next receive; False if nothing came within 100 ms."""
        if not self._ready:
            try:
                for inner in self:
                    self._ready.append(inner)
                    break
            except Timeout:
                return False
        return True

    @property
    def holds(self) -> bool:
        """Whether the next receive has a wanted message at once."""
        if not self._ready:
            found = self._kept()
            if found is None:
                return False
            self._ready.append(found)
        return True

    @property
    def holds_unseen(self) -> bool:
        """Whether messages wait that an earlier call left behind."""
        return bool(self._ready or self._unseen)

    def put_back(self, inners: Iterable[Any]) -> None:
        """Have these messages looked at first, in their order, by what is received next."""
        self._unseen.extendleft(reversed(list(inners)))

    def drain(self) -> tuple[list[Any], Exception | None]:
        """Give the wanted ones among the messages that wait, up to an error about one of them, and that error."""
        found: list[Any] = []
        try:
            while (inner := self._kept()) is not None:
                found.append(inner)
        except Exception as error:  # noqa: BLE001  # the caller raises it when nothing would be lost
            return found, error
        return found, None

    def forget(self) -> None:
        """Drop what is kept, as a seek does."""
        self._ready.clear()
        self._unseen.clear()

    def _kept(self) -> Any:
        """Give the next message that an earlier call left behind, or None."""
        while not self._ready and self._unseen:
            # Looked at where it lies: an error leaves it there, unless the error carries it.
            try:
                if self._wanted(self._unseen[0]):
                    self._ready.append(self._unseen[0])
            except MisroutedMessage:
                del self._unseen[0]
                raise
            del self._unseen[0]
        if not self._ready:
            return None
        found = self._ready[0]
        del self._ready[0]
        return found


def take_over(cls: type[T], plain: Any) -> T:
    """Make an object of a subclass out of a reader or consumer that is not used afterwards."""
    ours = cls.__new__(cls)
    for base in type(plain).__mro__:
        for name in base.__dict__.get("__slots__", ()):
            if hasattr(plain, name):
                setattr(ours, name, getattr(plain, name))
    vars(ours).update(vars(plain))
    return ours
