"""What letters are encrypted with: a key that was named for them, or that of their message."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Any, Final

import pulsar

from pulsar_ext.errors import AdminError, AdminRequired, InvalidUse
from pulsar_ext.ids.topic_name import TopicName

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulsar_ext.admin import PulsarAdmin

__all__ = ["LetterEncryption"]

_PATIENCE_SECONDS: Final = 1.0
_log = logging.getLogger("pulsar_ext")


class LetterEncryption:
    """Chooses the key of each letter of one consumer.

    Args:
        key: the name of the key that every letter is encrypted with; None for that of its message, if any.
        reader: the `CryptoKeyReader` with the public key; None for the consumer's own.
        own: the consumer's `CryptoKeyReader`, or None.

    Raises:
        InvalidUse: an argument is of another kind, or does not go without another; nothing was opened.
    """

    def __init__(self, key: str | None = None, reader: Any = None, own: Any = None) -> None:
        if key is not None and (not isinstance(key, str) or not key):
            raise InvalidUse(f"letter_encryption_key must be the name of a key, not {key!r}. Nothing was opened.")
        if reader is not None and not isinstance(reader, pulsar.CryptoKeyReader):
            raise InvalidUse(f"letter_crypto_key_reader must be a CryptoKeyReader, not {reader!r}. Nothing was opened.")
        if key is not None and reader is None and own is None:
            raise InvalidUse(
                "letter_encryption_key needs letter_crypto_key_reader, or the consumer's crypto_key_reader, with the "
                "public key. Nothing was opened."
            )
        self._key, self._reader = key, reader or own
        self._must = key is not None or reader is not None
        self._warned = False

    def key_of(self, inner: Any) -> str | None:
        """Return the name of the key that the letter of a C++ message is encrypted with; None for none."""
        if self._key is not None or self._reader is None:
            return self._key
        encryption = inner.encryption_context()
        if encryption is None or encryption.is_decryption_failed():
            return None
        keys = encryption.keys()
        return min((str(one.key) for one in keys), default=None)

    def options(self, key: str | None) -> dict[str, Any]:
        """Return the arguments of the producer of letters that are encrypted with a key."""
        return {} if key is None else {"encryption_key": key, "crypto_key_reader": self._reader}

    @staticmethod
    def refuse_clear(topic: str, admin_api: Callable[[], PulsarAdmin]) -> None:
        """Refuse letters in the clear where the namespace requires encryption: the C++ client would time out.

        Args:
            topic: where they go.
            admin_api: returns the admin API; where that does not say, nothing is refused.

        Raises:
            pulsar.CryptoError: encryption is required; nothing was sent.
        """
        namespace = TopicName.parse(topic).namespace_name
        with contextlib.suppress(AdminError, AdminRequired):
            if admin_api().within(_PATIENCE_SECONDS).policies(namespace).raw.get("encryption_required"):
                raise pulsar.CryptoError(
                    f"Pulsar error: CryptoError: {namespace} requires encryption; the letter to {topic} would be in "
                    "the clear. Nothing was sent; give subscribe() letter_encryption_key and letter_crypto_key_reader."
                )

    def leaves_in_clear(self, topic: str) -> bool:
        """Return if a letter that could not be encrypted is sent in the clear, which is logged once.

        Args:
            topic: where it goes.
        """
        if not self._must and not self._warned:
            self._warned = True
            _log.warning(
                "Letters to %s are sent in the clear, though their messages were encrypted: the consumer's "
                "crypto_key_reader has no public key. Give subscribe() letter_encryption_key and "
                "letter_crypto_key_reader to encrypt them.",
                topic,
            )
        return not self._must
