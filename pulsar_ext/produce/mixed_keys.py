"""Warn once that a producer's batches mix keys, where consumers share its topic by key: messages are misrouted there.

Whether they do is asked of the admin API in the background, at the first message with a key; the warning comes with a
later send. Without an answer nothing is said.
"""

from __future__ import annotations

import inspect
import logging
import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pulsar

from pulsar_ext.errors import AdminNotAllowed, PulsarExtError

if TYPE_CHECKING:
    from types import FrameType

    from pulsar_ext._runtime.context import ClientContext

__all__ = ["MixedKeyBatchWarning", "MixedKeyCheck", "mixed_key_check"]

_log = logging.getLogger("pulsar_ext")
_PACKAGE = str(Path(__file__).parents[1]) + os.sep


class MixedKeyBatchWarning(UserWarning):
    """A batched producer mixes keys in its batches, and consumers share its topic by key."""


class Named(Protocol):
    """What the warning names: an official producer, or a sender."""

    def topic(self) -> str:
        """Give the topic's name."""
        ...


class MixedKeyCheck:
    """Looks for messages with a key among those of a producer whose batches mix keys.

    Args:
        context: of the client.
    """

    __slots__ = ("_context", "_shared")

    def __init__(self, context: ClientContext) -> None:
        self._context = context
        self._shared: list[bool] | None = None
        """Whether a Key_Shared subscription is there: empty while that is not known, None before it is asked."""

    def look(self, options: dict[str, Any], producer: Named) -> MixedKeyCheck | None:
        """Look at the options of a message; give what looks at the next one, None once there is no more to say."""
        if options.get("partition_key") is None and options.get("ordering_key") is None:
            return self
        if self._shared is None:
            self._shared = shared = []
            topic = producer.topic()
            self._context.inquiries.run(lambda: shared.append(_is_shared_by_key(self._context, topic)))
            return self
        if not self._shared:
            return self
        if self._shared[0]:
            self._shared = [False]  # first, because a warning may be raised as an error
            _warn(producer.topic())
        return None


def mixed_key_check(named: dict[str, Any], context: ClientContext) -> MixedKeyCheck | None:
    """Give the check for a producer of these official arguments, None if its batches do not mix keys."""
    mixes = named["batching_enabled"] is True and named["batching_type"] != pulsar.BatchingType.KeyBased
    return MixedKeyCheck(context) if mixes else None


def _is_shared_by_key(context: ClientContext, topic: str) -> bool:
    """Ask whether a topic, or a topic with partitions, has a Key_Shared subscription; no answer counts as no."""
    try:
        admin = context.admin_api()
        try:
            stats = admin.stats(topic)
        except AdminNotAllowed:  # it has partitions
            stats = admin.partitioned_stats(topic).total
    except PulsarExtError as error:
        _log.debug("Whether %s is shared by key could not be found out: %s", topic, error)
        return False
    return any(one.type == "Key_Shared" for one in stats.subscriptions.values())


def _warn(topic: str) -> None:
    warnings.warn(
        f"A producer on {topic} sends messages with keys in batches that mix keys, and consumers share this topic by "
        "key. The broker gives a whole batch to the consumer that has the key of its first message, so consumers get "
        "messages of other consumers' keys. Create the producer with batching_type=BatchingType.KeyBased.",
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
