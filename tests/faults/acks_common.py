"""Common parts of the programs for faults of acknowledgements: outcomes, senders, subscriptions, the backlog."""

from __future__ import annotations

import contextlib
import json
import os
import time
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pulsar as official

import pulsar_ext
from pulsar_ext import PulsarAdmin

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

KINDS: Final = ("plain", "batched", "batch-index", "chunked")
TYPES: Final = {
    "Exclusive": official.ConsumerType.Exclusive,
    "Failover": official.ConsumerType.Failover,
    "Shared": official.ConsumerType.Shared,
    "Key_Shared": official.ConsumerType.KeyShared,
}
SUBSCRIPTION: Final = "s"
BATCH: Final = 10
_CHUNKED_BYTES: Final = 250_000
_ANSWER_SECONDS: Final = 120.0
_POLL_SECONDS: Final = 0.005
_FIRST_LETTER_MILLIS: Final = 30_000
_NEXT_LETTER_MILLIS: Final = 5_000
SETTINGS: Final = {
    "acknowledgmentAtBatchIndexLevelEnabled": True,
    "managedLedgerDefaultMarkDeleteRateLimit": 1.0,
}


@dataclass
class Outcome:
    """Outcome of one subscription's messages over all cycles."""

    fault: str
    type: str
    kind: str
    cycles: int = 0
    sent: int = 0
    delivered: int = 0
    lost: int = 0
    again: int = 0
    confirmed_again: int = 0
    holes: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        """True if a message was lost, or redelivered after its confirmation, or a hole remains."""
        return bool(self.lost or self.confirmed_again or self.holes)

    @property
    def confirmed_before_crash(self) -> int | None:
        """Number of confirmed messages that were delivered again after crashes; no other fault counts them."""
        return self.confirmed_again if self.fault == "crash" else None


def table(outcomes: Sequence[Outcome], head: Mapping[str, str], counts: Mapping[str, str], again: str) -> Iterator[str]:
    """Yield a table in Markdown: a row sums up its kinds of messages, and has what was delivered again of each kind.

    Args:
        outcomes: in the order of the rows.
        head: titles and attributes of the first columns; outcomes with equal ones are in one row.
        counts: titles and attributes of the sums.
        again: the title of the columns for messages delivered again.
    """
    kinds = [kind for kind in KINDS if any(one.kind == kind for one in outcomes)]
    yield f"| {' | '.join((*head, *counts))} | {again}: {' | '.join(kinds)} |"
    yield "|" + "---|" * len(head) + "--:|" * (len(counts) + len(kinds))
    rows: dict[tuple[str, ...], list[Outcome]] = {}
    for one in outcomes:
        rows.setdefault(tuple(getattr(one, name) for name in head.values()), []).append(one)
    for place, ones in rows.items():
        values = [[getattr(one, name) for one in ones] for name in counts.values()]
        values += [[one.again for one in ones if one.kind == kind] for kind in kinds]
        cells = ["-" if None in some else f"{sum(some):,}" for some in values]
        yield f"| {' | '.join((*place, *cells))} |"


def print_outcomes(outcomes: list[Outcome], table: Iterable[str], *, as_json: bool) -> int:
    """Print outcomes, as JSON or as a table and their notes; return the exit status."""
    if as_json:
        print(json.dumps([asdict(one) for one in outcomes], indent=1))
    else:
        print(*table, sep="\n")
        print(*(f"{one.fault} {one.type} {one.kind}: {note}" for one in outcomes for note in one.notes), sep="\n")
    return 1 if any(one.failed for one in outcomes) else 0


def quiet() -> Any:
    """Return a logger that discards everything, because reconnections are expected here."""
    return official.FileLogger(official.LoggerLevel.Error, os.devnull)


def label_of(data: bytes) -> int:
    return int(data.split(b".", 1)[0])


def producer_options(*, batch: int, chunked: bool) -> dict[str, Any]:
    """Return the arguments of a producer that sends batches of `batch` messages, 0 for none, or chunks."""
    options: dict[str, Any] = {"send_timeout_millis": 0}
    if batch:
        options |= {
            "batching_enabled": True,
            "batching_max_messages": batch,
            "batching_max_publish_delay_ms": 50,
        }
    if chunked:
        options["chunking_enabled"] = True
    return options


class Sender:
    """A sender of messages of one kind that returns when all are persisted.

    It never flushes: on a topic that the broker had fenced as it lost its store, the official client's flush never
    returned, though everything was persisted later. Unanswered messages are resent by another producer.
    """

    def __init__(self, client: Any, topic: str, kind: str) -> None:
        batch = BATCH if kind in ("batched", "batch-index") else 0
        options = producer_options(batch=batch, chunked=kind == "chunked")
        self._open = partial(client.create_producer, topic, **options)
        self._producer = self._open()
        self._size = _CHUNKED_BYTES if kind == "chunked" else 0
        self.sent = 0

    def send(self, count: int) -> None:
        """Send `count` more messages."""
        waiting = set(range(self.sent, self.sent + count))
        self.sent += count
        while not self._try(waiting):
            self._producer = self._open()

    def _try(self, waiting: set[int]) -> bool:
        def on_answer(label: int, result: Any, _: Any) -> None:
            if result == official.Result.Ok:
                waiting.discard(label)

        for label in sorted(waiting):
            self._producer.send_async((b"%d." % label).ljust(self._size, b"x"), partial(on_answer, label))
        deadline = time.monotonic() + _ANSWER_SECONDS
        while waiting and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        return not waiting


def subscribe(client: Any, topic: str, kind: str, type_name: str, queue: int = 20) -> Any:
    grouping = (
        {"ack_group_time_ms": 100} if isinstance(client, pulsar_ext.Client) else {}
    )  # the official client has a fixed one
    return client.subscribe(
        topic,
        SUBSCRIPTION,
        consumer_type=TYPES[type_name],
        initial_position=official.InitialPosition.Earliest,
        receiver_queue_size=queue,
        batch_index_ack_enabled=kind == "batch-index",
        **grouping,
    )


def unacknowledged(admin: PulsarAdmin, topic: str) -> str:
    """Return a description of the topic's unacknowledged entries; empty without any."""
    try:
        stats = admin.stats(topic, precise_backlog=True)
        cursor = admin.internal_stats(topic).cursors[SUBSCRIPTION]
    except (pulsar_ext.AdminError, KeyError) as error:
        return f"unknown: {error}"
    backlog = stats.subscriptions[SUBSCRIPTION].backlog_entries
    holes = ", ".join(map(str, cursor.individually_deleted))
    return f"backlog {backlog} behind {cursor.mark_delete_position} [{holes}]" if backlog or holes else ""


def note_remains(outcome: Outcome, admin: PulsarAdmin, topics: Iterable[str]) -> None:
    """Add a note for each topic with unacknowledged entries."""
    for topic in topics:
        remains = unacknowledged(admin, topic)
        if remains:
            outcome.holes += 1
            outcome.notes.append(f"{topic}: {remains}")


def dead_letters(client: Any, topic: str) -> Iterator[int]:
    """Yield the label of each dead letter of a topic's subscription, with an official client."""
    reader = client.create_reader(f"{topic}-{SUBSCRIPTION}-DLQ", official.MessageId.earliest)
    patience = _FIRST_LETTER_MILLIS
    with contextlib.suppress(official.Timeout):
        while True:
            yield label_of(reader.read_next(patience).data())
            patience = _NEXT_LETTER_MILLIS
    reader.close()
