"""What a sender that makes its own batches needs to know of the arguments of `create_producer`."""

from __future__ import annotations

from typing import Any

import pulsar

from .batch import Bounds

__all__ = ["BatchingConfig"]

_PLAIN = {"partition_key": str, "ordering_key": str, "sequence_id": int, "event_timestamp": int}
_MAX_NUMBER = (1 << 63) - 1


class BatchingConfig:
    """How a sender makes its batches, and how much may be pending.

    Args:
        named: the official arguments, by name.
        limit: how many messages may be pending, if not `max_pending_messages`; 0 for any number.
        partition: whose messages it sends, -1 for a topic without partitions.
    """

    def __init__(self, named: dict[str, Any], *, limit: int | None = None, partition: int = -1) -> None:
        batched = named["batching_enabled"]
        self.batched: bool = batched
        self.bounds = Bounds(
            named["batching_max_messages"] if batched else 1, named["batching_max_allowed_size_in_bytes"]
        )
        self.delay = named["batching_max_publish_delay_ms"] / 1000
        self.by_key: bool = batched and named["batching_type"] == pulsar.BatchingType.KeyBased
        self.limit: int = named["max_pending_messages"] if limit is None else limit
        self.blocks: bool = named["block_if_queue_full"]
        self.partition = partition

    @staticmethod
    def takes(options: dict[str, Any]) -> bool:
        """Whether the arguments of a send are of the plain types that need no check by the official client."""
        for name, value in options.items():
            if value is None:
                continue
            if name == "properties":
                if type(value) is not dict or not all(type(k) is str and type(v) is str for k, v in value.items()):
                    return False
            elif type(value) is not _PLAIN.get(name) or (type(value) is int and not 0 <= value <= _MAX_NUMBER):
                return False
        return True
