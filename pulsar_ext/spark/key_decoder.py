"""How the keys of messages become bytes and slots.

The C++ client shows a key that was sent as bytes in base64, and a text that looks like base64 the same way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pulsar_ext._wire.batch_payload import bytes_of_base64
from pulsar_ext.key_shared.hash_ranges import KeyHashRanges, SlotFilter
from pulsar_ext.key_shared.hashing import KeyForm, KeyForms

from .connection import admin_of

if TYPE_CHECKING:
    from .options import Settings

__all__ = ["KeyDecoder"]


class KeyDecoder:
    """Gives the bytes and the slot of a key, by option `keyForms`.

    Args:
        settings: the options.
    """

    def __init__(self, settings: Settings) -> None:
        exact = settings["keyForms"] == "exact"
        self._forms = KeyForms(lambda: admin_of(settings), "exact") if exact else None
        self._slots = None if self._forms is None else SlotFilter(KeyHashRanges.full(), self._forms)

    @property
    def exact(self) -> bool:
        """Whether the admin API is asked about each key that may have been sent as bytes."""
        return self._forms is not None

    def decode(self, inner: Any, text: str) -> bytes | None:
        """Give the key of one message: the bytes of its text, or those that it was sent as.

        Args:
            inner: the C++ message.
            text: its key as the C++ client shows it.
        """
        decoded = bytes_of_base64(text) if text else b""
        if self._forms is None or decoded is None:
            return text.encode() if text else None
        form = self._forms.form_of(inner, text)
        if form is KeyForm.BASE64:
            return decoded
        return None if form is KeyForm.NONE else text.encode()

    def slot(self, inner: Any) -> int:
        """Give the slot that the broker computes for one message; only if `exact`."""
        assert self._slots is not None  # noqa: S101  # only if `exact`
        return self._slots.slot(inner)
