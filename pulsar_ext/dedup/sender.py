"""The effectively-once sender: every message persisted exactly once, whatever dies in between.

The decisions are `sequence_ids.py`'s. This shell sends what is new, and answers for what the topic holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pulsar

from pulsar_ext._native.signatures import shaped_like
from pulsar_ext.errors import ProducerBroken
from pulsar_ext.produce.batching import BatchingSender
from pulsar_ext.produce.outcome import DUPLICATE_MESSAGE

from .sequence_ids import Standing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pulsar_ext._runtime.callbacks import SendCallback
    from pulsar_ext.ids.message_id import MessageId
    from pulsar_ext.produce.batching import MixedKeyCheck

    from .dispatch import DedupDispatcher
    from .sequence_ids import SequenceIds

__all__ = ["DedupSender"]


class DedupSender(BatchingSender):
    """A `BatchingSender` that is effectively once.

    Args:
        dispatch: the batches.
        mixed_keys: looks for the first message with a key, if batches mix keys.
    """

    __slots__ = ("sequence",)

    dispatch: DedupDispatcher
    many_at_once = frozenset({"sequence_id"})
    waits = True  # a message that is refused for lack of room could not be sent behind later ones any more

    def __init__(self, dispatch: DedupDispatcher, *, mixed_keys: MixedKeyCheck | None) -> None:
        super().__init__(dispatch, dispatch.sequence, mixed_keys=mixed_keys)
        self.sequence: SequenceIds = dispatch.sequence

    @shaped_like(pulsar.Producer.send)
    def send(self, content: Any, *args: Any, **kwargs: Any) -> MessageId:
        """Send a message, and wait until it is persisted; an error that has no name of its own tells its cause.

        Raises:
            DuplicateMessage: the topic holds it already.
            ProducerBroken: nothing may be sent any more.
        """
        try:
            return super().send(content, *args, **kwargs)
        except pulsar.UnknownError as error:
            if self.sequence.broken is None:
                raise
            raise pulsar.UnknownError(f"{error}: {self.sequence.broken}") from None

    def last_sequence_id(self) -> int:
        """Give the highest sequence id up to which everything is persisted, -1 if there is none."""
        return self.sequence.published

    def last_sequence_id_pushed(self) -> int:
        """Give the highest sequence id that a message of this producer has, persisted or on its way."""
        return self.sequence.highest

    def admit(self, given: int | None, callback: SendCallback | None) -> int | None:
        """Decide about the next message: None if the topic holds it already, or may; the lock is held.

        Raises:
            ProducerBroken: nothing may be sent any more.
            SequenceIdRejected: the id cannot be sent now.
        """
        if self.sequence.broken is not None:
            self.check_whole()
        sequence_id, standing = self.sequence.admit(given)
        if standing is Standing.NEW:
            return sequence_id
        if standing is Standing.DUPLICATE or not self.dispatch.await_original(sequence_id, callback):
            self.dispatch.refuse(callback, DUPLICATE_MESSAGE)
        return None

    def admit_many(self, count: int, given: Sequence[int] | None) -> Sequence[int] | None:
        """Give the sequence ids of so many messages at once; None if they have to be admitted one by one."""
        self.check_whole()
        if given is None:
            return self.sequence.admit_many(count)
        return given if self.sequence.admit_ascending(given) else None

    def check_whole(self) -> None:
        """Refuse messages behind one that may be missing.

        Raises:
            ProducerBroken: it is not known whether something that was pushed is persisted.
        """
        if self.sequence.broken is not None:
            raise ProducerBroken(
                f"The producer {self.producer_name()} on {self.topic()} takes no more messages: "
                f"{self.sequence.broken}. "
                "Close it and create it again with its name: last_sequence_id_published() then says where to go on.",
                last_published=self.sequence.published,
            )
