"""Where a message id came from."""

from __future__ import annotations

import enum

__all__ = ["Origin"]


class Origin(enum.Enum):
    """Where an id came from, and so how much it knows of its message."""

    LIVE = "live"
    """Handed out by a producer, a consumer or a reader: knows whether its message is chunked."""
    BYTES = "bytes"
    """Deserialized: knows it as well, if what was serialized did."""
    NUMBERS = "numbers"
    """Rebuilt from numbers or text: any entry, perhaps one chunk of a message."""

    @property
    def stored(self) -> Origin:
        """What is left of it once the id is stored."""
        return Origin.BYTES if self is Origin.LIVE else self
