"""Duplicates that the broker tells of, looked up: its topic may not hold them.

When a broker cannot store a message, it refuses what its producers have sent behind it, closes them, and then takes the
topic into use again. A connection goes on for a moment to feed a producer that is closed, and then a later message is
stored where earlier ones were refused (Pulsar 4.2.4: `ServerCnx.safelyRemoveProducer` removes a producer by a task of
its own, and `PersistentTopic.decrementPendingWriteOpsAndCheck` does not wait for it). The client sends the earlier ones
again. The broker keeps one number for a name, so it answers that they are duplicates, and they are lost.

A message that was pushed once and is called a duplicate is therefore looked up. What the topic does not hold is sent
under another name, `name+1`, `name+2` and so on: the broker takes it under its own no more. It then stands behind later
ones. (`name~1` is for messages in chunks; where a name goes on is told by those, and not by what stands out of order.)
"""

from __future__ import annotations

import logging
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

import pulsar

from pulsar_ext._native.handles import build_again, inner_producer_of
from pulsar_ext._native.messages import batch_message
from pulsar_ext._native.results import raise_result
from pulsar_ext._runtime.condition import Flag
from pulsar_ext.errors import MessageIdUnresolved
from pulsar_ext.ids.position import Position
from pulsar_ext.produce.outcome import DUPLICATE_MESSAGE, persisted_entry
from pulsar_ext.produce.sender import close_quietly

from .patience import Patience, PatientAdmin
from .resumption import not_held
from .stored import own_entries

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pulsar_ext.admin import PulsarAdmin
    from pulsar_ext.produce.batch import Batch
    from pulsar_ext.produce.outcome import PersistedEntry

__all__ = ["DuplicateCheck"]

_OK = pulsar.Result.Ok
_log = logging.getLogger("pulsar_ext")


class DuplicateCheck:
    """Looks up what the broker calls duplicates of a name, and sends what its topic does not hold.

    Args:
        admin: the admin API.
        topic: the topic or partition.
        name: the producer's.
        partition: of the topic, -1 if it has none.
        open_as: opens an official producer of a name.
        timeout: the producer's, in seconds; it is tried for four times as long. 0 for ever.
        number: the broker's for the name when the producer was opened. What is pushed since with an id up to it is
            missing, as the opening found, and the broker can only call it a duplicate; it needs no look-up.
    """

    def __init__(
        self,
        admin: PulsarAdmin,
        topic: str,
        name: str,
        partition: int,
        open_as: Callable[[str], pulsar.Producer],
        timeout: float,
        number: int,
    ) -> None:
        self._admin = admin
        self._topic = topic
        self._name = name
        self._partition = partition
        self._open_as = open_as
        self._patience = 4 * timeout or 1e9
        self._number = number

    def outcomes(
        self, told: Sequence[Batch], last: PersistedEntry | None, is_over: Callable[[], bool]
    ) -> dict[Batch, tuple[Any, PersistedEntry | None]]:
        """Find out which of the batches called duplicates are missing, send those, and give what became of them.

        Args:
            told: the batches, in the order of their pushes.
            last: where the last batch before them is that is known to be persisted; None if there is none.
            is_over: whether the producer is closed, so that nothing is tried again.

        Raises:
            AdminError, pulsar.PulsarException: it could not be found out, or done, in time.
        """
        ask = Patience(self._patience, is_over)
        missing = self._missing(told, last, ask)
        return self._send(missing, ask) if missing else {}

    def _missing(self, told: Sequence[Batch], last: PersistedEntry | None, ask: Patience) -> list[Batch]:
        asked = {batch.carried for batch in told if batch.carried is not None}
        lost = {carried for carried in asked if carried <= self._number}
        if asked > lost:
            lost |= self._not_held(asked - lost, last, ask)
        return [batch for batch in told if batch.carried in lost]

    def _not_held(self, asked: set[int], last: PersistedEntry | None, ask: Patience) -> frozenset[int]:
        admin: Any = PatientAdmin(self._admin, ask)
        stats = admin.internal_stats(self._topic)
        own = own_entries(admin, self._topic, stats, self._name, behind=_just_before(last))
        try:
            return not_held(asked, (entry.carried for entry in own))
        except MessageIdUnresolved as error:
            _log.warning("The broker says that messages are duplicates, and that could not be looked up. %s", error)
            return frozenset()

    def _send(self, missing: Sequence[Batch], ask: Patience) -> dict[Batch, tuple[Any, PersistedEntry | None]]:
        first, last = missing[0].ids[0], missing[-1].ids[-1]
        for number in count(1):
            name = f"{self._name}+{number}"
            producer = ask(partial(self._open_as, name))
            try:
                if producer.last_sequence_id() >= first:
                    continue  # another time it was this name's turn
                # One by one: nothing behind a message may be stored where the message is not.
                sent = {batch: self._send_one(inner_producer_of(producer), batch) for batch in missing}
            finally:
                close_quietly(producer)
            _log.warning(
                "The broker called messages of the producer %s duplicates, with sequence ids from %d to %d, and %s did "
                "not hold them: it had refused them and stored later ones. They have been sent under the name %s, and "
                "stand behind those.",
                self._name,
                first,
                last,
                self._topic,
                name,
            )
            return sent
        raise AssertionError  # there is always another name

    def _send_one(self, producer: Any, batch: Batch) -> tuple[Any, PersistedEntry | None]:
        known = Flag()
        outcome: list[Any] = []

        def on_outcome(result: Any, inner: Any) -> None:
            outcome[:] = [result, inner]
            known.set()

        producer.send_async(_built_again(batch), on_outcome)
        if not known.wait(self._patience):
            raise_result(pulsar.Result.Timeout)
        result, inner = outcome
        if result != _OK:
            raise_result(result)
        if inner.ledger_id() < 0:  # its answer was lost with a connection
            return DUPLICATE_MESSAGE, None
        return _OK, persisted_entry(inner, self._partition, batched=batch.message is None)


def _just_before(entry: PersistedEntry | None) -> Position | None:
    """Give the position in front of an entry, so that the entry is the last that is looked at."""
    if entry is None:
        return None
    ledger_id, entry_id = entry[:2] if isinstance(entry, tuple) else (entry.ledger_id(), entry.entry_id())
    return Position(ledger_id, entry_id - 1)


def _built_again(batch: Batch) -> Any:
    """Make the C++ message of a batch anew: one that was sent cannot be sent again."""
    if batch.message is None:
        return batch_message(batch.payload(), batch.count)
    return build_again(batch.message, batch.options, batch.ids[0])
