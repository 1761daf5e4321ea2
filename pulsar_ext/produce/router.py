"""Which partition a message goes to, as the official client decides (pure), and the routers of applications."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any, Protocol

import pulsar

from pulsar_ext._native.messages import official_message

from .hashing_scheme import HashingScheme, hash_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .batch import Bounds
    from .config import BatchingConfig

__all__ = ["KeylessRouter", "RoundRobin", "Routing", "SinglePartition"]


class Routing:
    """How a producer chooses among its partitions.

    Args:
        named: the arguments of `create_producer`.
        config: of each partition's producer.
        partitions: how many there are.
        router: the application's own, guarded.
        deduplicates: whether a message sent again must go to the same partition.
        scheme: how keys are hashed.
    """

    def __init__(
        self,
        named: dict[str, Any],
        config: BatchingConfig,
        partitions: int,
        router: Callable[[Any, int], int] | None,
        *,
        deduplicates: bool,
        scheme: HashingScheme = HashingScheme.BoostHash,
    ) -> None:
        self.router = router
        self._hash = hash_of(scheme)
        single = named["message_routing_mode"] == pulsar.PartitionsRoutingMode.UseSinglePartition
        self._fixed: int | None = None
        if single and deduplicates:
            self._fixed = hash_of(HashingScheme.BoostHash)(named["producer_name"]) % partitions
        self._deduplicates = deduplicates
        self._keyless: KeylessRouter = (
            SinglePartition(partitions)
            if single
            else RoundRobin(config.bounds if config.batched else None, named["batching_max_publish_delay_ms"])
        )

    def choose(self, message: Any, size: int, options: dict[str, Any], partitions: int) -> int:
        """Give the partition of a built message; a router's answer may be out of range."""
        if self.router is not None:
            return self.router(official_message(message), partitions)
        key = options.get("partition_key")
        if key is not None:
            return self._hash(key) % partitions
        if self._fixed is not None:
            return self._fixed
        sequence_id = options.get("sequence_id")
        if self._deduplicates and isinstance(sequence_id, int):
            return sequence_id % partitions
        return self._keyless.keyless(size, partitions)

    def choose_many(
        self, keys: Sequence[str | None], sizes: Sequence[int], ids: Sequence[int] | None, partitions: int
    ) -> list[int]:
        """Give the partitions of many messages as `choose` would, where the application has no router.

        Args:
            keys: their keys.
            sizes: the bytes of their payloads.
            ids: their sequence ids, None for automatic ones.
            partitions: how many there are.
        """
        hash_key = self._hash
        if self._fixed is None and self._deduplicates and ids is not None:
            return [
                (sequence_id if key is None else hash_key(key)) % partitions
                for key, sequence_id in zip(keys, ids, strict=True)
            ]
        keyless, fixed = self._keyless.keyless, self._fixed
        return [
            hash_key(key) % partitions if key is not None else keyless(size, partitions) if fixed is None else fixed
            for key, size in zip(keys, sizes, strict=True)
        ]


class KeylessRouter(Protocol):
    """Decides for messages without a key."""

    def keyless(self, size: int, partitions: int, /) -> int:
        """Give the partition of a message of that many bytes."""
        ...


class SinglePartition:
    """All messages without a key go to one partition, drawn by lot at the start."""

    def __init__(self, partitions: int) -> None:
        self._partition = random.randrange(partitions)  # noqa: S311  # no secret

    def keyless(self, _size: int, _partitions: int) -> int:
        """Give the partition."""
        return self._partition


class RoundRobin:
    """One partition after the other; with batching, each for the messages, the bytes or the time of a batch.

    Args:
        bounds: of a batch; None without batching.
        delay_ms: how long a batch may stay open.
    """

    def __init__(self, bounds: Bounds | None, delay_ms: int) -> None:
        self._bounds = bounds
        self._delay_ms = delay_ms
        self._cursor = random.randrange(1 << 31)  # noqa: S311  # no secret
        self._messages = self._bytes = 0
        self._changed_ms = self._now()

    @staticmethod
    def _now() -> int:
        return time.time_ns() // 1_000_000

    def keyless(self, size: int, partitions: int) -> int:
        """Give the partition."""
        bounds = self._bounds
        if bounds is None:
            self._cursor += 1
            return (self._cursor - 1) % partitions
        now = self._now()
        if (
            self._messages >= bounds.messages
            or size >= bounds.size - self._bytes
            or now - self._changed_ms >= self._delay_ms
        ):
            self._cursor += 1
            self._changed_ms = now
            self._messages, self._bytes = 1, size
        else:
            self._messages += 1
            self._bytes += size
        return self._cursor % partitions
