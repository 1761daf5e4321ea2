"""The scenarios by name, in the order of the table; those that need the same broker stand together."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from pulsar_ext.errors import InvalidUse

from . import (
    ack_batch_index,
    ack_disconnected,
    ack_lost_on_crash,
    ack_then_reset,
    async_cancelled_receive,
    async_chunk_send_id,
    async_seek_earliest,
    batch_parse_garbage,
    batch_partly_acknowledged,
    callback_raises,
    chunk_ack_deserialized,
    chunk_ack_rebuilt,
    chunk_cut,
    chunk_nack,
    chunk_queue_full,
    chunk_reader_start,
    chunk_restart,
    chunk_seek,
    chunk_seek_in_flight,
    dead_letter_batch,
    dedup_batch_duplicates,
    dedup_batch_loss,
    exit_acknowledged,
    exit_pending,
    exit_sending,
    forked_client,
    interrupted_receive,
    key_shared_batch_misroute,
    key_shared_uncovered_stall,
    listener_dropped,
    no_queue_batch,
    pattern_discovery,
    reader_ends_early,
    seek_beyond_end,
    seek_cut,
    seek_one_partition,
    send_refused,
    sequence_id_zero,
    skip_batched,
    skip_mid_chunk,
    table_view_big,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ._scenario import Scenario

__all__ = ["GROUPS", "SCENARIOS", "select"]

_MODULES = (
    chunk_seek,
    chunk_seek_in_flight,
    chunk_reader_start,
    chunk_ack_deserialized,
    chunk_ack_rebuilt,
    chunk_nack,
    chunk_restart,
    chunk_cut,
    chunk_queue_full,
    async_chunk_send_id,
    skip_mid_chunk,
    skip_batched,
    seek_beyond_end,
    seek_one_partition,
    seek_cut,
    reader_ends_early,
    table_view_big,
    pattern_discovery,
    no_queue_batch,
    key_shared_batch_misroute,
    key_shared_uncovered_stall,
    interrupted_receive,
    async_cancelled_receive,
    async_seek_earliest,
    listener_dropped,
    exit_pending,
    exit_sending,
    exit_acknowledged,
    ack_lost_on_crash,
    ack_disconnected,
    ack_then_reset,
    dead_letter_batch,
    forked_client,
    callback_raises,
    send_refused,
    batch_parse_garbage,
    ack_batch_index,
    batch_partly_acknowledged,
    dedup_batch_loss,
    dedup_batch_duplicates,
    sequence_id_zero,
)

SCENARIOS: Final[Mapping[str, Scenario]] = MappingProxyType(
    {module.SCENARIO.name: module.SCENARIO for module in _MODULES}
)

GROUPS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = MappingProxyType(
    {
        "chunks": (
            "large messages are not found again by a stored id, not redelivered, or confirmed and lost",
            (
                "chunk-seek",
                "chunk-seek-in-flight",
                "chunk-reader-start",
                "chunk-ack-deserialized",
                "chunk-ack-rebuilt",
                "chunk-nack",
                "chunk-restart",
                "chunk-cut",
                "chunk-queue-full",
                "async-chunk-send-id",
            ),
        ),
        "skip and seek": (
            "a skip counts batches instead of messages; a seek drops what comes later, or is not done at all",
            (
                "skip-mid-chunk",
                "skip-batched",
                "seek-beyond-end",
                "seek-one-partition",
                "seek-cut",
                "async-seek-earliest",
            ),
        ),
        "keys": (
            "Key_Shared consumers get messages of other consumers' keys, or all of them stand still",
            ("key-shared-batch-misroute", "key-shared-uncovered-stall"),
        ),
        "receiving": (
            "a Ctrl-C or a timeout swallows the next message; a loop ends early; a listener falls silent",
            (
                "interrupted-receive",
                "async-cancelled-receive",
                "reader-ends-early",
                "no-queue-batch",
                "listener-dropped",
                "table-view-big",
                "pattern-discovery",
                "batch-parse-garbage",
            ),
        ),
        "acknowledgements": (
            "they are lost with a connection or a process, or acknowledge more than was meant",
            (
                "ack-lost-on-crash",
                "ack-disconnected",
                "ack-then-reset",
                "ack-batch-index",
                "batch-partly-acknowledged",
                "dead-letter-batch",
            ),
        ),
        "producers": (
            "deduplication drops or doubles messages; a callback that raises, or a refused message, hangs the rest",
            ("dedup-batch-loss", "dedup-batch-duplicates", "sequence-id-zero", "callback-raises", "send-refused"),
        ),
        "processes": (
            "a program that ends or forks loses messages, gets them again, hangs or aborts",
            ("exit-pending", "exit-sending", "exit-acknowledged", "forked-client"),
        ),
    }
)
"""What the scenarios are about: for each group, what goes wrong, and the scenarios that show it."""


def select(names: Iterable[str]) -> list[Scenario]:
    """Give the scenarios of these names in the order of the table; all of them without names.

    Raises:
        InvalidUse: a name is unknown; the message lists the scenarios.
    """
    wanted = list(names)
    unknown = [name for name in wanted if name not in SCENARIOS]
    if unknown:
        raise InvalidUse(f"no scenario {', '.join(unknown)}; choose from: {', '.join(SCENARIOS)}")
    return [scenario for name, scenario in SCENARIOS.items() if not wanted or name in wanted]
