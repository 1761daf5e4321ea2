"""Messages in chunks without deduplication: none is lost to a connection that ends amid it.

Where a connection ends, the C++ producer sends again what has no answer, chunk by chunk, under the same name. If some
chunks of a message were written before, they are on the topic twice then, and consumers of the C++ client drop them
all, though the message was confirmed. The same happens to a message whose name and sequence id were used before,
by a process that was killed amid it. So here the C++ producer is closed before it can send anything again, and another
one, of another name, sends everything that has no outcome, from the first chunk on and in the same order. As officially
a message may be on the topic twice, whole, if the answer to it was on its way.
"""

from __future__ import annotations

import logging
import operator
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pulsar

from pulsar_ext._native import threads
from pulsar_ext._native.handles import build_again, build_plain
from pulsar_ext._native.results import UNREACHABLE, result_of
from pulsar_ext._runtime.scheduler import batch_scheduler

from .batching import BatchingSender
from .dispatch import BatchDispatcher
from .sender import close_quietly

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulsar_ext._native.handles import ProducerHandle
    from pulsar_ext._runtime.callbacks import SendCallback
    from pulsar_ext._runtime.context import ClientContext

    from .batch import Batch
    from .config import BatchingConfig

__all__ = ["ResendingDispatcher", "ResendingSender"]

_CLOSED, _TIMEOUT = pulsar.Result.AlreadyClosed, pulsar.Result.Timeout
_TOO_BIG = pulsar.Result.MessageTooBig
_TAKEN = (pulsar.ProducerBusy, pulsar.ProducerFenced)
"""What an opening says before the broker has counted out the connection that ended, or where others came first."""
_POLL_SECONDS: Final = 0.005
"""How often the connection is looked at; the C++ producer has another one after 100 ms."""
_PAUSE_SECONDS: Final = 0.2
_SLACK_SECONDS: Final = 1.0
_TAKEN_SECONDS: Final = 5.0
_CHUNK_BYTES: Final = 5 * 1024 * 1024
"""The broker's default `maxMessageSize`. The client does not know the real one; a smaller one loosens the bound."""

_log = logging.getLogger("pulsar_ext")


class ResendingDispatcher(BatchDispatcher):
    """A `BatchDispatcher` of single messages that are sent by another C++ producer where the connection ends.

    Args:
        handle: the C++ producer.
        context: of its client.
        config: without batching.
        open_again: opens an official producer of the same topic, given a name and the sequence id to go on behind.
        named: whether the application gave the producer's name; else the broker gives each one its own.
        timeout: after how many seconds a message has failed, 0 for never.
    """

    def __init__(
        self,
        handle: ProducerHandle,
        context: ClientContext,
        config: BatchingConfig,
        open_again: Callable[[str | None, int], pulsar.Producer],
        *,
        named: bool,
        timeout: float,
    ) -> None:
        super().__init__(handle, context, config)
        self._open_again = open_again
        self._name = str(handle.producer_name()) if named else None
        self._attempts = 0
        self._timeout = timeout
        self._replacing = False

    def push_batch(self, batch: Batch) -> None:
        """Hand a message to the C++ producer, and look after its connection from now on."""
        if batch.unsent is None:
            batch_scheduler.watch(self, _POLL_SECONDS)
        super().push_batch(batch)

    def tick(self, now: float) -> float | None:
        """Have the C++ producer replaced if its connection has ended amid something; the scheduler's call."""
        oldest = next(iter(list(self._flying)), None)  # at once: others take out what has its outcome
        if oldest is None or self.forgotten:
            return None
        if self._timeout and now > oldest.began + self._timeout + _SLACK_SECONDS:  # it was sent again meanwhile
            if self._flying.pop(oldest, self) is None:
                self.context.outcomes.run(partial(self.report, oldest, _TIMEOUT, None))
        elif not (self._replacing or self.closed or self.handle.is_connected()):
            self._replacing = True
            try:
                threads.start(self._replace, name="pulsar_ext-resend")
            except RuntimeError:  # the interpreter is ending and starts no threads any more
                return None
        return _POLL_SECONDS

    def on_outcome(self, batch: Batch, result: Any, inner: Any) -> None:
        """Take the outcome of a message, if it is one: a C++ producer that is replaced fails what it has."""
        if result != _CLOSED or self.closed or self.pending.barred:
            super().on_outcome(batch, result, inner)

    def begin_close(self) -> Any:
        """Begin to close the C++ producer, which fails what is still on its way; what waits for another one fails."""
        answer = super().begin_close()
        if self._replacing:
            self.fail_pending()
        return answer

    # Replacing; on a thread of its own

    def _replace(self) -> None:
        """Close the C++ producer, and send with another one what has no outcome."""
        try:
            close_quietly(self.handle)
            official = self._patiently_opened()
        except BaseException as error:  # noqa: BLE001  # its senders must get an answer
            if not isinstance(error, pulsar.PulsarException):
                _log.exception("Messages could not be sent again")
            result = result_of(error)
            lost = list(self._flying)
            self._replacing = False
            for batch in lost:
                self.failed(batch, _CLOSED if self.closed else result)
            return
        if not self.exclusively(self._install, official):
            close_quietly(official)

    def _patiently_opened(self) -> pulsar.Producer:
        """Open another producer: the broker may be starting, or loading the topic."""
        deadline = time.monotonic() + _TAKEN_SECONDS
        while True:
            self._attempts += 1
            name = None if self._name is None else f"{self._name}~{self._attempts}"
            try:
                return self._open_again(name, int(self.handle.last_sequence_id()))
            except (*UNREACHABLE, *_TAKEN) as error:
                if self.closed or self.pending.barred or not self._flying:
                    raise
                if isinstance(error, _TAKEN) and time.monotonic() > deadline:
                    raise
                threads.sleep(_PAUSE_SECONDS)

    def _install(self, official: pulsar.Producer) -> bool:
        """Send with another producer, first what has no outcome; False if this is closed. The lock is held."""
        if self.closed or self.pending.barred:
            return False
        self.handle.replace(official)
        self._replacing = False
        for batch in list(self._flying):
            if operator.length_hint(batch.unsent or (None,)):
                continue  # a signal came between: it is still to be pushed
            batch.message = build_again(batch.message, batch.options, batch.ids[0])
            self.handle.inner.send_async(batch.message, partial(self.on_outcome, batch))
            if batch.refused:
                self.context.outcomes.run(partial(self.deliver, batch, _TOO_BIG, None))
        return True


class ResendingSender(BatchingSender):
    """A sender with `chunking_enabled`, where each message takes as much room as it has chunks, as officially.

    The official client acquires that room while it holds the lock that frees it, so a full queue deadlocks it for good.
    """

    __slots__ = ()

    def _post_alone(self, content: Any, callback: SendCallback | None, options: dict[str, Any], patient: bool) -> None:
        """Push a message, once there is room for all of its chunks."""
        data = None if content is None else self.handle.schema.encode(content)
        if data is not None and type(data) is not bytes:
            self.handle.build(content)  # raises what the official client raises
        chunks = max(1, -(-len(data or b"") // _CHUNK_BYTES))
        given, dispatch = options.get("sequence_id"), self.dispatch
        if dispatch.make_room(callback, patient=patient, places=chunks):
            upcoming = self.numbers.upcoming if given is None else given
            message = build_plain(data, {**options, "sequence_id": upcoming})
            number = self.admit(given, callback)
            if number is not None:
                dispatch.push_alone(message, callback, (number,), options, burden=chunks - 1)
