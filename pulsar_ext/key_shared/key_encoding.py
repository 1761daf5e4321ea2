"""What a received message's key really is, where the C++ client does not say.

The C++ client shows a key as text. It does not tell a key that was sent as bytes, which is stored as base64, from a
text that looks like base64, nor an empty key from none. Where the answer decides whether a message is in a range, the
admin API knows: the flag is in the entry's metadata, or, for a message of a batch, in the batch itself. The key's text
is never taken from there, because an HTTP header holds Latin-1 only.
"""

from __future__ import annotations

import logging
import time
import warnings
from collections import OrderedDict
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal

from pulsar_ext._native import threads
from pulsar_ext._native.locks import Lock
from pulsar_ext._wire.batch_payload import IS_BASE64, PARTITION_KEY, batch_metadata
from pulsar_ext._wire.message_id_data import has_first_chunk
from pulsar_ext.errors import AdminError, AdminNotFound, AdminUnauthorized, AdminUnavailable, InvalidUse

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulsar_ext.admin import EntryMetadata, PulsarAdmin

__all__ = ["KeyForm", "KeyFormWarning", "KeyForms", "KeyFormsMode", "batch_forms"]

KeyFormsMode = Literal["auto", "exact", "text"]

_MODES = ("auto", "exact", "text")
_ENOUGH = 500
"""So many equal answers about one producer in a row, and "auto" stops asking about it."""
_PATIENCE_SECONDS = 60.0
_PAUSE_SECONDS = 0.2
_CHUNK_SECONDS = 3.0
"""How long the headers of a chunk may take; of some compressed messages the broker never shows them."""
_REMEMBERED_BATCHES = 64
_REMEMBERED_KEYS = 100_000

_log = logging.getLogger("pulsar_ext.keys")


class KeyForm(Enum):
    """How a message carries its key."""

    NONE = "none"
    TEXT = "text"
    BASE64 = "base64"


class KeyFormWarning(UserWarning):
    """No admin API answers, so a key is taken for text and an empty key for none, which may be another slot."""


def batch_forms(payload: bytes, size: int) -> list[KeyForm] | None:
    """Read how each message of a batch carries its key; None if it cannot be read, as an encrypted one."""
    messages = batch_metadata(payload, size)
    if messages is None:
        return None
    return [_form(has_key=PARTITION_KEY in one, is_base64=bool(one.get(IS_BASE64))) for one in messages]


class KeyForms:
    """Finds out the form of keys, and asks as little as it can.

    Args:
        admin: gives the admin API when it is first needed.
        mode: "exact" asks about every message that it matters for. "auto" takes a producer's key to have the same form
            each time, stops asking about a producer when 500 answers in a row were the same, and goes on after a
            warning where no admin API ever answered. "text" never asks: every key is text, and an empty one is none.

    Raises:
        InvalidUse: there is no such mode.
    """

    def __init__(self, admin: Callable[[], PulsarAdmin], mode: KeyFormsMode = "auto") -> None:
        if mode not in _MODES:
            raise InvalidUse(f"key_forms is one of {', '.join(_MODES)}, not {mode!r}.")
        self._admin = admin
        self._mode = mode
        self._lock = Lock()
        self._batches: OrderedDict[tuple[str, int, int], list[KeyForm]] = OrderedDict()
        self._texts: dict[tuple[str, str], KeyForm] = {}
        self._streaks: dict[tuple[str, bool], tuple[KeyForm, int] | None] = {}
        self._hiding: set[str] = set()
        """Producers whose chunks the admin API cannot show."""
        self._answered = False
        self._without_admin = False

    @property
    def asks(self) -> bool:
        """Whether it may ask the admin API."""
        return self._mode != "text" and not self._without_admin

    def form_of(self, inner: Any, text: str) -> KeyForm:
        """Give the form of a C++ message's key.

        Args:
            inner: the C++ message.
            text: its key, as the C++ client shows it.

        Raises:
            AdminError: the admin API does not answer, in "exact" mode, or any more: for a minute.
            InvalidUse: in "exact" mode, the message is in a batch that cannot be read, as an encrypted one, or in
                chunks that are compressed, which the broker cannot show.
        """
        usual = KeyForm.TEXT if text else KeyForm.NONE
        if not self.asks:
            return usual
        producer = inner.producer_name()
        known = None
        if self._mode == "auto":
            with self._lock:
                known = self._texts.get((producer, text)) if text else None
                streak = self._streaks.get((producer, bool(text)))
            if known is None and streak is not None and streak[1] >= _ENOUGH:
                known = streak[0]
            if known is None and producer in self._hiding and _is_chunked(inner):
                known = usual
        return known or self._learn(inner, producer, text, usual)

    def _learn(self, inner: Any, producer: str, text: str, usual: KeyForm) -> KeyForm:
        try:
            form = self._ask_patiently(inner)
        except AdminNotFound:
            return usual  # trimmed since it was read, so its form cannot be found out any more
        except AdminError as error:
            if self._mode == "exact" or self._answered:
                raise
            self._go_on_without(error)
            return usual
        if form is None:
            if self._mode == "exact":
                raise InvalidUse(
                    f"Message {inner.message_id()} is in a batch, or in chunks, that the admin API cannot read, so the "
                    'form of its key is unknown; key_forms="text" takes keys as they look.'
                )
            return usual
        with self._lock:
            if text:
                if len(self._texts) >= _REMEMBERED_KEYS:
                    self._texts.clear()
                self._texts[producer, text] = form
            self._count((producer, bool(text)), form)
        return form

    def _count(self, about: tuple[str, bool], form: KeyForm) -> None:
        last = self._streaks.get(about, (form, 0))
        if last is None:
            return
        if last[0] is not form:
            self._streaks[about] = None  # this producer does both: ask for ever
            return
        self._streaks[about] = form, last[1] + 1
        if last[1] + 1 == _ENOUGH and self._mode == "auto":
            what = "keys that look like base64" if about[1] else "empty keys"
            _log.info(
                "Producer %s: %d %s in a row were %s; taken for granted from here on (key_forms='exact' asks on).",
                *(about[0], _ENOUGH, what, form.value),
            )

    def _ask_patiently(self, inner: Any) -> KeyForm | None:
        """Ask; an admin API that has answered before is waited for, as the messages themselves would be."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                form = self._ask(inner)
            except AdminUnavailable:
                if not self._answered or time.monotonic() > deadline:
                    raise
                threads.sleep(_PAUSE_SECONDS)
            else:
                self._answered = True
                return form

    def _ask(self, inner: Any) -> KeyForm | None:
        message_id = inner.message_id()
        topic, ledger, entry = inner.topic_name(), message_id.ledger_id(), message_id.entry_id()
        index: int = message_id.batch_index()
        if index < 0:
            found = self._chunk(inner) if _is_chunked(inner) else self._admin().entry(topic, ledger, entry)
            if found is None:
                return None
            return _form(has_key=found.partition_key is not None, is_base64=found.partition_key_b64_encoded)
        where = (topic, ledger, entry)
        with self._lock:
            forms = self._batches.get(where)
        if forms is None:
            batch = self._admin().entry(topic, ledger, entry, payload=True)
            size = batch.num_messages_in_batch
            forms = batch_forms(batch.payload or b"", size) if size is not None and not batch.encrypted else None
            if forms is None:
                return None
            with self._lock:
                self._batches[where] = forms
                if len(self._batches) > _REMEMBERED_BATCHES:
                    self._batches.popitem(last=False)
        return forms[index] if index < len(forms) else None

    def _chunk(self, inner: Any) -> EntryMetadata | None:
        """Read the headers of a message's last chunk; None if they cannot be had, as those of a compressed one."""
        message_id, topic, admin = inner.message_id(), inner.topic_name(), self._admin()
        try:
            return admin.within(_CHUNK_SECONDS).entry(topic, message_id.ledger_id(), message_id.entry_id())
        except (AdminNotFound, AdminUnauthorized):
            raise
        except AdminError:
            admin.internal_stats(topic)  # is it there at all?
            with self._lock:
                self._hiding.add(inner.producer_name())
            return None

    def _go_on_without(self, error: AdminError) -> None:
        with self._lock:
            warned, self._without_admin = self._without_admin, True
        if not warned:
            warnings.warn(
                f"Cannot find out whether a key was sent as bytes, or is empty or missing: {error} From here on keys "
                "are taken for text and empty ones for none; a message sent otherwise counts to another slot than the "
                "broker's. Give Client(admin=…) or PULSAR_ADMIN_URL, or key_forms='text' if no producer does such.",
                KeyFormWarning,
                stacklevel=2,
            )


def _is_chunked(inner: Any) -> bool:
    return has_first_chunk(inner.message_id().serialize())


def _form(*, has_key: bool, is_base64: bool) -> KeyForm:
    if not has_key:
        return KeyForm.NONE
    return KeyForm.BASE64 if is_base64 else KeyForm.TEXT
