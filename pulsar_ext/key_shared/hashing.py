"""Slot of a key, exactly as the broker computes it; see `array_slots.py` for arrays of keys.

The broker has two numberings of slots: `key_slot` for fixed ranges, and `auto_split_slot` if the broker splits the
slots itself. Mirrors `StickyKeyConsumerSelectorUtils.makeStickyKeyHash` and `Commands.resolveStickyKey`.

`KeyForms` resolves the true form of a received message's key. The C++ client shows a key as text. It does not
distinguish a key that was sent as bytes, which is stored as base64, from a text that looks like base64, nor an empty
key from a missing one. If the range of a message depends on this, the admin API is asked: the flag is in the entry's
metadata or, for a message of a batch, in the batch. The key's text is never read from there, because an HTTP header
holds Latin-1 only.
"""

from __future__ import annotations

import base64
import binascii
import logging
import time
import warnings
from collections.abc import Callable
from enum import Enum
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Literal

import mmh3

from pulsar_ext._native.locks import Lock
from pulsar_ext._native.messages import InnerMessage
from pulsar_ext._runtime.retry import retry
from pulsar_ext._wire.batch_payload import IS_BASE64, PARTITION_KEY, batch_metadata
from pulsar_ext._wire.message_id_data import has_first_chunk
from pulsar_ext.admin import EntryMetadata, PulsarAdmin
from pulsar_ext.errors import AdminError, AdminNotFound, AdminUnauthorized, AdminUnavailable, InvalidUse

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .array_slots import Keys


SLOTS = 65_536
"""Number of slots: 0 to 65,535; the broker never assigns slot 0 to a key."""

LAST = SLOTS - 1

_POSITIVE = 0x7FFF_FFFF
"""Mask of a hash: Java's `Murmur3_32Hash` is never negative."""


def key_slot(key: str | bytes) -> int:
    """Return the slot of a key, 1 to 65,535, exactly as the broker computes it for fixed ranges.

    The slot is the lower 16 bits of Murmur3 (32 bits, seed 0). The broker replaces slot 0 by 1, because 0 means "no
    hash". If the broker splits the slots itself, use `auto_split_slot`.

    Args:
        key: a text, hashed as UTF-8, or bytes. A key that was sent as bytes appears in Python as base64 text; decode
            it first.

    Raises:
        TypeError: it is neither text nor bytes.
        UnicodeEncodeError: the text cannot be encoded as UTF-8.
    """
    return _hash(key) & LAST or 1


def auto_split_slot(key: str | bytes) -> int:
    """Return the slot of a key, 1 to 65,535, in the broker's numbering if it splits the slots itself.

    The slot is the hash modulo 65,535, plus 1 (`ConsistentHashingStickyKeyConsumerSelector`). A broker with
    `subscriptionKeySharedUseConsistentHashing=false` numbers them as `key_slot`; `KeyCover.slot_of` detects this.

    Args:
        key: as for `key_slot`.

    Raises:
        TypeError, UnicodeEncodeError: as for `key_slot`.
    """
    return (_hash(key) & _POSITIVE) % LAST + 1


def _hash(key: str | bytes) -> int:
    # mmh3 itself crashes the process on a text that cannot be encoded as UTF-8.
    try:
        found: int = mmh3.hash(key.encode() if isinstance(key, str) and not key.isascii() else key)
    except TypeError:
        raise TypeError(f"A key must be a str or bytes, not {key!r}.") from None
    return found


def sticky_key(
    partition_key: str | None,
    *,
    ordering_key: bytes | None = None,
    is_base64: bool = False,
    producer_name: str = "",
    sequence_id: int = 0,
) -> bytes:
    """Return the bytes that determine the message's slot; Java's `Commands.resolveStickyKey`."""
    if ordering_key is not None:
        return ordering_key
    if partition_key is None:
        return f"{producer_name}-{sequence_id}".encode()
    if not is_base64:
        return partition_key.encode()
    try:
        return base64.b64decode(partition_key, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidUse(f"The key {partition_key!r} is marked as base64, but cannot be decoded: {error}.") from None


def key_slots(keys: Keys) -> NDArray[np.uint16]:
    """Return the slot of each key; see `key_slot`.

    Args:
        keys: an Arrow array or chunked array of text or binary, dictionary-encoded or plain; a numpy array of text or
            bytes; or any iterable of `str` and `bytes`.

    Returns:
        A numpy array of the slots.

    Raises:
        InvalidUse: numpy is not installed, a key is null, or the array holds neither text nor bytes. A null has no
            fixed slot: the slot depends on the message's producer and sequence id.
    """
    try:
        from .array_slots import slots_of  # noqa: PLC0415  # numpy is optional, and only needed here
    except ImportError as error:
        raise InvalidUse("key_slots() needs numpy: pip install numpy; or use key_slot() for one key.") from error
    return slots_of(keys, _hash)


KeyFormsMode = Literal["auto", "exact", "text"]

_MODES = ("auto", "exact", "text")
_CERTAIN_AFTER = 500
"""Number of equal answers in a row about one producer after which "auto" stops asking about it."""
_RETRY_SECONDS = 60.0
_RETRY_PAUSE_SECONDS = 0.2
_CHUNK_SECONDS = 3.0
"""Timeout of a request for a chunk's headers; for some compressed messages the broker never returns them."""
_MAX_CACHED_BATCHES = 64
_MAX_CACHED_KEYS = 100_000

_log = logging.getLogger("pulsar_ext.keys")


class KeyForm(Enum):
    """Form of a message's key."""

    NONE = "none"
    TEXT = "text"
    BASE64 = "base64"


class KeyFormWarning(UserWarning):
    """The admin API does not answer, so keys count as text and empty keys as missing, which may be another slot."""


def batch_forms(payload: bytes, size: int) -> list[KeyForm] | None:
    """Return the form of the key of each message of a batch; None if it is unreadable, such as an encrypted one."""
    messages = batch_metadata(payload, size)
    if messages is None:
        return None
    return [_form(has_key=PARTITION_KEY in one, is_base64=bool(one.get(IS_BASE64))) for one in messages]


class KeyForms:
    """Resolver of the form of keys, with as few requests as possible.

    Args:
        admin: returns the client of the admin API; called on first use.
        mode: "exact" asks about every message whose form matters. "auto" assumes that a producer's key always has the
            same form, and stops asking about a producer after 500 equal answers in a row. If no admin API ever
            answered, it continues with a warning. "text" never asks: every key is text, and an empty key is missing.

    Raises:
        InvalidUse: the mode is unknown.
    """

    def __init__(self, admin: Callable[[], PulsarAdmin], mode: KeyFormsMode = "auto") -> None:
        if mode not in _MODES:
            raise InvalidUse(f"key_forms must be one of {', '.join(_MODES)}, got {mode!r}.")
        self._admin = admin
        self._mode = mode
        self._lock = Lock()
        self._forms_of_batch = lru_cache(_MAX_CACHED_BATCHES)(self._read_batch)
        self._texts: dict[tuple[str, str], KeyForm] = {}
        self._streaks: dict[tuple[str, bool], tuple[KeyForm, int] | None] = {}
        self._unreadable: set[str] = set()
        """Producers of chunks that the admin API cannot show."""
        self._answered = False
        self._without_admin = False

    @property
    def asks(self) -> bool:
        """True if it may ask the admin API."""
        return self._mode != "text" and not self._without_admin

    def form_of(self, inner: InnerMessage, text: str) -> KeyForm:
        """Return the form of a message's key, shown as `text`; in "exact" mode, raise if it is unknown."""
        usual = KeyForm.TEXT if text else KeyForm.NONE
        if not self.asks:
            return usual
        producer = inner.producer_name()
        known = None
        if self._mode == "auto":
            with self._lock:
                known = self._texts.get((producer, text)) if text else None
                streak = self._streaks.get((producer, bool(text)))
            if known is None and streak is not None and streak[1] >= _CERTAIN_AFTER:
                known = streak[0]
            if known is None and producer in self._unreadable and _is_chunked(inner):
                known = usual
        return known or self._learn(inner, producer, text, usual)

    def _learn(self, inner: InnerMessage, producer: str, text: str, usual: KeyForm) -> KeyForm:
        try:
            form = self._ask_with_retries(inner)
        except AdminNotFound:
            return usual  # trimmed since it was read, so its form is unknown
        except AdminError as error:
            if self._mode == "exact" or self._answered:
                raise
            self._stop_asking(error)
            return usual
        if form is None:
            if self._mode == "exact":
                raise InvalidUse(
                    f"The form of the key of message {inner.message_id()} is unknown: the admin API cannot read its "
                    'batch or its chunks. Use key_forms="text" to treat keys as text.'
                )
            return usual
        with self._lock:
            if text:
                if len(self._texts) >= _MAX_CACHED_KEYS:
                    self._texts.clear()
                self._texts[producer, text] = form
            self._count((producer, bool(text)), form)
        return form

    def _count(self, about: tuple[str, bool], form: KeyForm) -> None:
        last = self._streaks.get(about, (form, 0))
        if last is None:
            return
        if last[0] is not form:
            self._streaks[about] = None  # this producer sends both forms, so every message is asked about
            return
        self._streaks[about] = form, last[1] + 1
        if last[1] + 1 == _CERTAIN_AFTER and self._mode == "auto":
            what = "keys that look like base64" if about[1] else "empty keys"
            _log.info(
                "Producer %s: %d %s in a row were %s; assumed from now on (use key_forms='exact' to continue asking).",
                *(about[0], _CERTAIN_AFTER, what, form.value),
            )

    def _ask_with_retries(self, inner: InnerMessage) -> KeyForm | None:
        """Ask the admin API; retry if it has answered before, because the messages would wait for it as well."""
        deadline = time.monotonic() + _RETRY_SECONDS

        def may(error: Exception) -> bool:
            return isinstance(error, AdminUnavailable) and self._answered and time.monotonic() < deadline

        form = retry(partial(self._ask, inner), may, seconds=_RETRY_PAUSE_SECONDS)
        self._answered = True
        return form

    def _ask(self, inner: InnerMessage) -> KeyForm | None:
        message_id = inner.message_id()
        topic, ledger, entry = inner.topic_name(), message_id.ledger_id(), message_id.entry_id()
        index = message_id.batch_index()
        if index < 0:
            found = self._chunk(inner) if _is_chunked(inner) else self._admin().entry(topic, ledger, entry)
            if found is None:
                return None
            return _form(has_key=found.partition_key is not None, is_base64=found.partition_key_b64_encoded)
        forms = self._forms_of_batch(topic, ledger, entry)
        return forms[index] if forms is not None and index < len(forms) else None

    def _read_batch(self, topic: str, ledger: int, entry: int) -> list[KeyForm] | None:
        batch = self._admin().entry(topic, ledger, entry, payload=True)
        size = batch.num_messages_in_batch
        return batch_forms(batch.payload or b"", size) if size is not None and not batch.encrypted else None

    def _chunk(self, inner: InnerMessage) -> EntryMetadata | None:
        """Return the headers of a message's last chunk; None if unavailable, such as those of a compressed message."""
        message_id, topic, admin = inner.message_id(), inner.topic_name(), self._admin()
        try:
            return admin.within(_CHUNK_SECONDS).entry(topic, message_id.ledger_id(), message_id.entry_id())
        except (AdminNotFound, AdminUnauthorized):
            raise
        except AdminError:
            admin.internal_stats(topic)  # raises if the admin API is down
            with self._lock:
                self._unreadable.add(inner.producer_name())
            return None

    def _stop_asking(self, error: AdminError) -> None:
        with self._lock:
            warned, self._without_admin = self._without_admin, True
        if not warned:
            warnings.warn(
                f"The admin API cannot show whether a key was sent as bytes, or is empty or missing: {error} From now "
                "on keys count as text and empty keys as missing, which may be another slot than the broker's. Pass "
                "Client(admin=…) or set PULSAR_ADMIN_URL, or use key_forms='text' if all keys are text.",
                KeyFormWarning,
                stacklevel=2,
            )


def _is_chunked(inner: InnerMessage) -> bool:
    return has_first_chunk(inner.message_id().serialize())


def _form(*, has_key: bool, is_base64: bool) -> KeyForm:
    if not has_key:
        return KeyForm.NONE
    return KeyForm.BASE64 if is_base64 else KeyForm.TEXT
