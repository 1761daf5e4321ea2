"""Warn once, for each producer, that its batches mix keys, which misroutes messages where consumers share keys."""

from __future__ import annotations

import inspect
import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pulsar

if TYPE_CHECKING:
    from types import FrameType

__all__ = ["MixedKeyBatchWarning", "MixedKeyCheck", "mixed_key_check"]

_PACKAGE = str(Path(__file__).parents[1]) + os.sep


class MixedKeyBatchWarning(UserWarning):
    """A batched producer sends keyed messages, and its batching type is not KeyBased."""


class Named(Protocol):
    """What the warning names: an official producer, or a sender."""

    def topic(self) -> str:
        """Give the topic's name."""
        ...

    def producer_name(self) -> str:
        """Give the producer's name."""
        ...


class MixedKeyCheck:
    """Looks for the first message with a key among those of a producer whose batches mix keys."""

    __slots__ = ("_warned",)

    def __init__(self) -> None:
        self._warned = False

    def look(self, options: dict[str, Any], producer: Named) -> MixedKeyCheck | None:
        """Look at the options of a message; give what looks at the next one, None once the warning is out."""
        if not self._warned:
            if options.get("partition_key") is None and options.get("ordering_key") is None:
                return self
            self._warned = True  # first, because a warning may be raised as an error
            _warn(producer)
        return None


def mixed_key_check(named: dict[str, Any]) -> MixedKeyCheck | None:
    """Give the check for a producer of these official arguments, None if its batches do not mix keys."""
    mixes = named["batching_enabled"] is True and named["batching_type"] != pulsar.BatchingType.KeyBased
    return MixedKeyCheck() if mixes else None


def _warn(producer: Named) -> None:
    warnings.warn(
        f"The producer {producer.producer_name()} on {producer.topic()} sends messages with keys in batches that mix "
        "keys. The broker gives a batch to whoever has the slot of its first message's key, so Key_Shared "
        "consumers and key-range readers of other clients get messages of other slots. Use batching_type="
        "BatchingType.KeyBased, or ignore MixedKeyBatchWarning if nobody shares this topic by key.",
        MixedKeyBatchWarning,
        stacklevel=_levels_to_application(),
    )


def _levels_to_application() -> int:
    """Count the calls between the application's line and the caller of this function, for the warning to name it."""
    frame: FrameType | None = inspect.currentframe()
    level = 0
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, level = frame.f_back, level + 1
    return level
