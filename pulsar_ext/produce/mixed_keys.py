"""Tell once, for each producer, that its batches mix keys, which misroutes messages where consumers share keys."""

from __future__ import annotations

import functools
import os
import sys
import warnings
from typing import Any, TypeVar

import pulsar

from pulsar_ext.producer import Producer

_P = TypeVar("_P", bound=Producer)

_PACKAGE = os.path.dirname(__file__) + os.sep  # noqa: PTH120  # as the frames tell it

__all__ = ["MixedKeyBatchWarning", "producer_class"]


class MixedKeyBatchWarning(UserWarning):
    """A batched producer sends keyed messages, and its batching type is not KeyBased."""


def _outside() -> int:
    """Count the calls between the line of the application and this function's caller."""
    frame, level = sys._getframe(1), 1  # noqa: SLF001  # as `warnings` itself does
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, level = frame.f_back, level + 1
    return level


def _warn(producer: Producer) -> None:
    warnings.warn(
        f"The producer {producer.producer_name()} on {producer.topic()} sends messages with keys in batches that mix "
        "keys. The broker gives a batch to whoever has the slot of its first message's key, so Key_Shared "
        "consumers and key-range readers of other clients get messages of other slots. Use batching_type="
        "BatchingType.KeyBased, or ignore MixedKeyBatchWarning if nobody shares this topic by key.",
        MixedKeyBatchWarning,
        stacklevel=_outside(),
    )


@functools.cache
def _mixing(base: Any) -> Any:
    """Give a class that is `base` until its first message with a key; then it tells what that means and is `base`."""

    class Mixing(base):  # type: ignore[misc]  # as the argument says
        __slots__ = ()

        def build(
            self,
            content: Any,
            properties: dict[str, str] | None = None,
            partition_key: str | None = None,
            ordering_key: str | None = None,
            *args: Any,
            **kwargs: Any,
        ) -> Any:
            """Make the C++ message."""
            self._look(partition_key, ordering_key)
            # By name, because the object is no longer of this class.
            return base.build(self, content, properties, partition_key, ordering_key, *args, **kwargs)

        def encode(self, content: Any, options: dict[str, Any]) -> Any:
            """Write a message of a batch."""
            self._look(options.get("partition_key"), options.get("ordering_key"))
            return base.encode(self, content, options)

        def _look(self, *keys: str | None) -> None:
            if any(key is not None for key in keys):
                object.__setattr__(self, "__class__", base)  # from here on, sending costs nothing extra
                _warn(self)

    Mixing.__name__ = Mixing.__qualname__ = base.__name__
    return Mixing


def producer_class(base: type[_P], named: dict[str, Any]) -> type[_P]:
    """Give the class of a producer that was asked for with these arguments.

    Args:
        base: what it is once it has told.
        named: the official arguments.
    """
    if named["batching_enabled"] is not True or named["batching_type"] == pulsar.BatchingType.KeyBased:
        return base
    asked: Any = base
    kind: type[_P] = _mixing(asked)
    return kind
