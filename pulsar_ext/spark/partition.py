"""One task of a Spark read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import InputPartition

from .schema import BatchMaker
from .segment_reader import read_segments
from .shipping import Shipped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.types import StructType

    from pulsar_ext.key_shared.hash_ranges import KeyHashRanges

    from .message_block import MessageBlock
    from .options import Settings
    from .splits import Split

__all__ = ["PulsarPartition", "read_split", "wanted_ranges"]

_SEQUENCE_IDS: Final = frozenset({"__sequenceId", "__keySlot"})
"""The columns that sequence ids are needed for: a message without a key has its slot by its sequence id."""


class PulsarPartition(InputPartition, metaclass=Shipped):
    """What one task reads."""

    def __init__(self, split: Split) -> None:
        super().__init__(None)
        self.split = split

    def __repr__(self) -> str:
        segments = ", ".join(f"{one.topic} ({one.after}..{one.until}]" for one in self.split.segments)
        return f"PulsarPartition({segments})"


def wanted_ranges(settings: Settings) -> KeyHashRanges | None:
    """Give the slots that the options select; None means all."""
    ranges: KeyHashRanges | None = settings["keyHashRanges"] or settings["keys"]
    return ranges


def read_split(split: Split, schema: StructType, settings: Settings) -> Iterator[Any]:
    """Read what one task reads, as Arrow record batches of the schema."""
    maker = BatchMaker(schema, settings)

    def to_batch(block: MessageBlock) -> Any:
        batch = maker.make(block)
        block.release()  # before the next block is read
        return batch

    wants = not _SEQUENCE_IDS.isdisjoint(schema.fieldNames())
    return map(to_batch, read_segments(split.segments, split.ranges, settings, wants_sequence_ids=wants))
