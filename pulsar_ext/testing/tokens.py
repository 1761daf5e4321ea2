"""The tokens of a test broker: JSON web tokens that the broker checks and the harness signs."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
from typing import TYPE_CHECKING, Final

from .profiles import SUPERUSER

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["KEY_FILE", "TokenSecret"]

KEY_FILE: Final = "token-secret.key"
"""Where the key is, among a broker's files."""


class TokenSecret:
    """The secret key of one broker, and the tokens (JSON web tokens, HS256) that it signs.

    The key is random and lives as long as the broker's data; neither it nor a token shows in a repr.

    Args:
        key: 32 bytes or more, as read back from a kept data directory; a new random key by default.
    """

    def __init__(self, key: bytes | None = None) -> None:
        self.key = secrets.token_bytes(32) if key is None else key
        """What the broker reads."""

    def __repr__(self) -> str:
        return "TokenSecret(<hidden>)"

    def token(self, role: str = SUPERUSER, expires: int | None = None) -> str:
        """Sign a token for the role; only `SUPERUSER` is permitted anything at first.

        Args:
            role: for whom.
            expires: when it ends, in seconds since 1970; None for never.
        """
        claims: dict[str, str | int] = {"sub": role} if expires is None else {"sub": role, "exp": expires}
        parts = [_base64url(json.dumps(part).encode()) for part in ({"alg": "HS256"}, claims)]
        signature = hmac.digest(self.key, ".".join(parts).encode(), hashlib.sha256)
        return ".".join([*parts, _base64url(signature)])

    @classmethod
    def load(cls, directory: Path) -> TokenSecret:
        """Take the key of the broker whose files are in the directory."""
        return cls((directory / KEY_FILE).read_bytes())


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
