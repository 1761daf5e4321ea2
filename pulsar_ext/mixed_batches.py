"""Tell once, for each producer, that its batches mix keys, which misroutes messages where consumers share keys."""

from __future__ import annotations

import warnings
from typing import Any

import pulsar

from .producer import Producer

__all__ = ["MixedKeyBatchWarning", "producer_class"]


class MixedKeyBatchWarning(UserWarning):
    """A batched producer sends keyed messages, and its batching type is not KeyBased."""


class _MixingProducer(Producer):
    """A `Producer` until its first message with a key; then it tells what that means and is a plain `Producer`."""

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
        if partition_key is not None or ordering_key is not None:
            object.__setattr__(self, "__class__", Producer)  # from here on, sending costs nothing extra
            warnings.warn(
                f"The producer {self.producer_name()} on {self.topic()} sends messages with keys in batches that mix "
                "keys. The broker gives a batch to whoever has the slot of its first message's key, so Key_Shared "
                "consumers and key-range readers of other clients get messages of other slots. Use batching_type="
                "BatchingType.KeyBased, or ignore MixedKeyBatchWarning if nobody shares this topic by key.",
                MixedKeyBatchWarning,
                stacklevel=3,
            )
        # By name, because the object is no longer of this class.
        return Producer.build(self, content, properties, partition_key, ordering_key, *args, **kwargs)


def producer_class(*, batching_enabled: Any, batching_type: Any) -> type[Producer]:
    """Give the class of a producer with these settings."""
    return _MixingProducer if batching_enabled and batching_type != pulsar.BatchingType.KeyBased else Producer
