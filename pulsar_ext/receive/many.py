"""Receiving several messages at once, and one after the other in a `for` loop.

Every kind of receive takes from the same place: a few hundred messages that were fetched ahead, or as many waits for
one (see `Prefetch`). They are ready in the `ReceiveOrder`, with numbers or without.
"""

from __future__ import annotations

import time
from itertools import repeat
from threading import get_ident
from typing import TYPE_CHECKING, Any

from pulsar_ext._native.results import POLL_MILLIS, AlreadyClosed, Timeout
from pulsar_ext.errors import InvalidUse
from pulsar_ext.schema.typed import T

from .interrupted import LEAVING_SECONDS
from .loop import Receiving
from .order import Transition
from .record import Recorder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pulsar_ext.message import Message

    from .filter import ScreenedSource
    from .interrupted import Interrupted
    from .pause import Pause
    from .prefetch import Prefetch
    from .sieve import Sieve
    from .source import Source

__all__ = ["ReceivingMany", "check_max_messages"]

_AWAY_MILLIS = 100
"""How long a broker that cannot be reached is waited for until a batch is empty: as long as officially by default."""


class ReceivingMany(Receiving[T]):
    """What a `Consumer` does with many messages."""

    _interrupted: Interrupted
    _pause: Pause
    _prefetch: Prefetch | None
    _recorder: Recorder | None
    _screen: Callable[[Any], bool] | None
    _screened: ScreenedSource | None
    _sieve: Sieve | None
    _source: Source
    _is_wanted: Callable[[Any], bool]
    """Tells whether a C++ message of a batch is for the application."""
    _receive_plain: Callable[[int | None], Message]
    """`receive()` without interceptors."""

    def pause(self) -> None:
        """Hand out no messages until `resume()`: receives and loops wait as if none came, and so does a listener.

        A receive that waits already may still get one, and so may a listener behind a seek that comes meanwhile: the
        C++ client begins to call it before it can be told to wait. The receiver queue stays full, and no more messages
        come from the broker. In a `batch_receive()` a pause counts as a time in which nothing came. Java's
        `Consumer.pause`, which hands out what is in the queue.

        Raises:
            pulsar.AlreadyClosed: it is closed.
        """
        self._refuse_closed()
        self._pause.begin(self.inner)

    def resume(self) -> None:
        """Hand out messages again, if it was paused; Java's `Consumer.resume`.

        Raises:
            pulsar.AlreadyClosed: it is closed.
        """
        self._refuse_closed()
        self._pause.end(self.inner)

    def pause_message_listener(self) -> None:
        """Have the listener wait, until `resume_message_listener()`: a seek or a redelivery does not end that.

        Raises:
            pulsar.InvalidConfiguration: there is no listener.
            pulsar.AlreadyClosed: it is closed.
        """
        self._pause.silence(self.inner)

    def resume_message_listener(self) -> None:
        """Have the listener go on, in a `pause()` behind that; raises as `pause_message_listener()`."""
        self._pause.unsilence(self.inner)

    @property
    def is_paused(self) -> bool:
        """Whether `pause()` was called, and `resume()` was not."""
        return self._order.is_paused

    def receive_many(self, max_messages: int = 100, timeout_millis: int | None = None) -> list[Message[T]]:
        """Receive several messages at once: waits for the first, and takes with it what is there already.

        What is not in the list stays where seeks, redeliveries and other receives find it. After a Ctrl-C the next call
        on the same thread returns what this one had.

        Args:
            max_messages: how many at most; a hundred are faster than a thousand, which leave the processor's cache.
            timeout_millis: how long to wait for the first; None waits for ever.

        Returns:
            The messages, in order; empty if none came in time.

        Raises:
            InvalidUse: `max_messages` is not an int of 1 or more.
            pulsar.AlreadyClosed: it is closed.
        """
        check_max_messages(max_messages)
        thread, kept_by = get_ident(), self._interrupted.many
        kept = kept_by.setdefault(thread, [])
        try:
            if not kept:
                kept.append(self._receive_plain(timeout_millis))
                self._take(kept, max_messages)
        except Timeout:
            if self._prefetch is not None:
                self._prefetch.found_few()
        except AlreadyClosed:  # or replaced: what was there before goes first
            if not kept:
                raise
        try:  # noqa: SIM105  # no call from here on: a Ctrl-C would lose what nobody keeps any more
            del kept_by[thread]
        except KeyError:  # a seek on another thread has dropped it
            pass
        return kept

    def batch_receive(self) -> list[Message[T]]:
        """Receive several messages at once, as many as the `batch_receive_policy` says.

        After a Ctrl-C the next call on the same thread returns what this one had.

        Returns:
            The messages, in order; empty if none came within the policy's time.
        """
        thread, batches = get_ident(), self._interrupted.batches
        while True:
            batch = self._receive_batch(thread)
            new = self._message_class  # afterwards: the wait may have ended on another cluster
            messages = []
            looks = self._screen is not None or self._order.is_doubted
            for inner in filter(self._is_wanted, batch) if looks else batch:
                message = new()
                message.inner = inner
                messages.append(message)
            if self._recorder is not None:
                self._recorder.note([message.inner for message in messages])
            try:  # noqa: SIM105  # no call from here on, as above
                del batches[thread]
            except KeyError:  # a seek on another thread has dropped it, or nothing came
                pass
            if messages or not batch:  # else none of them was for the application
                return messages

    def _stop_fetching_(self) -> None:
        """Let nobody begin to wait for the C++ consumer's answer: its client ends, and it may never give one."""
        interrupted = self._interrupted  # first: behind this it is refused only if it is closed
        if not self._closed:
            interrupted.bar()
        if (prefetch := self._prefetch) is not None:
            self._prefetch = None
            prefetch.end()

    def _end_batches_(self, deadline: float) -> None:
        """Wait for those who wait for a batch; whoever still does at `deadline` is answered by a close."""
        interrupted = self._interrupted  # first: behind this it is refused only if it is closed
        if not (self._closed or interrupted.await_others(deadline)):
            self.inner.close_async(None)
            interrupted.await_others(time.monotonic() + LEAVING_SECONDS[Transition.CLOSE])

    def _receive_batch(self, thread: int) -> list[Any]:
        """Receive several C++ messages, and keep them for the thread's next call."""
        batches, tried = self._interrupted.batches, None
        while True:
            try:
                self._wait_while_paused(POLL_MILLIS)
            except Timeout:
                return batches.setdefault(thread, [])
            try:
                batch: list[Any] = batches.setdefault(thread, [])
                if not batch and self._interrupted.is_barred:  # asked behind that: who bars waits for who is noted
                    batches.pop(thread, None)
                    self._order.wait_for_transition()
                    self._context.senders.refuse_ended()
                    continue
                self._take_ahead(batch)
                if self._prefetch is not None:
                    self._order.claim(thread)
                    self._prefetch.batch(batch)
                    return batch
                if not batch:
                    for batch in iter(self.inner.batch_receive, None):
                        batches[thread] = batch  # no call in between: a Ctrl-C leaves the batch to the next call
                        break
                    if self._flow is not None:
                        self._flow.received += len(batch)
                        self._flow.empty += not batch
                return batch  # noqa: TRY300  # an `else` could not tell the ways apart
            except AlreadyClosed:
                try:
                    tried = self._other_than(tried, _AWAY_MILLIS)
                except Timeout:
                    return batches.setdefault(thread, [])

    def _take_ahead(self, batch: list[Any]) -> None:
        """Take what comes before the C++ consumer's batches, into an empty one."""
        if not batch:
            batch += self._interrupted.ahead
        for kept in (self._screened, self._sieve):
            if not batch and kept is not None:
                kept.give_up_to(batch)

    def _take(self, kept: list[Message], upto: int) -> None:
        """Take messages that are there, until a list has so many.

        Raises:
            pulsar.Timeout: no more are there.
        """
        thread = get_ident()
        while len(kept) < upto:
            new = self._message_class
            numbers, ahead, left = self._order.claim(thread), self._fetching(), upto - len(kept)
            waits = map(self._source.wait, repeat(0, left))
            source, are_made = (waits, False) if ahead is None else ahead.several_here(left)
            self._mind(ahead)
            message = new()
            if are_made:
                kept.extend(source)
            elif numbers is not None:
                for message.inner, message.number in zip(source, numbers, strict=False):
                    kept.append(message)
                    message = new()
            else:
                for message.inner in source:
                    kept.append(message)
                    message = new()

    def __iter__(self) -> Iterator[Message[T]]:  # noqa: C901, PLR0912  # as in `receive()`
        """Receive for ever, one message after the other, until it is closed."""
        order, tried = self._order, None
        while not self._closed:
            new = self._message_class
            message = new()
            try:
                if order.sieve is not None:
                    yield self._receive_next_(POLL_MILLIS)
                    continue
                self._refill()
                made = order.made
                for message in made:
                    if (sieve := order.sieve) is not None:
                        sieve.unseen.append(message.inner)  # in one step: a Ctrl-C finds it there
                        break
                    yield message
                    if order.made is not made:
                        break
                run = order.run
                if run is not None and run.thread == get_ident():
                    for message.inner, message.number in run.messages:
                        if (sieve := order.sieve) is not None:
                            sieve.unseen.append(message.inner)
                            break
                        yield message
                        if order.run is not run:
                            break
                        message = new()
                else:
                    ready = order.ready
                    for message.inner in ready:
                        if (sieve := order.sieve) is not None:
                            sieve.unseen.append(message.inner)
                            break
                        yield message
                        if order.ready is not ready:
                            break
                        message = new()
            except Timeout:
                self._context.callbacks.refuse("a receive without messages")
            except AlreadyClosed:
                if not self._closed:
                    tried = self._other_than(tried)

    def _record_(self) -> list[Any]:
        """Note what is received from now on, as C++ messages in the list that is returned."""
        if self._recorder is None:
            self._recorder = Recorder(self._source)
            self._source = self._recorder
            self._order.begin_epoch()
        return self._recorder.begin()

    def _end_record_(self, noted: list[Any]) -> list[Message[T]]:
        """Stop noting in a list that `record()` returned, and give its messages."""
        recorder = self._recorder
        if recorder is not None:
            recorder.end(noted)
            if not recorder.lists:
                self._recorder, self._source = None, recorder.source
                self._order.begin_epoch()
        return [self._message_of_(inner) for inner in noted]

    def _message_of_(self, inner: Any) -> Message[T]:
        """Give a C++ message as one of this consumer's."""
        message = self._message_class()
        message.inner = inner
        return message

    def _refill(self) -> None:
        """Have this thread's next receives find messages where they look first, with numbers if that is right."""
        self._wait_while_paused(POLL_MILLIS)
        numbers, ahead = self._order.claim(get_ident()), self._fetching()
        source, are_made = (self._fast_source(), False) if ahead is None else ahead.several()
        self._mind(ahead)
        self._order.offer(source, numbers, made=are_made)

    def _wait_while_paused(self, timeout_millis: int) -> None:
        if self._order.is_paused and not self._closed:
            self._pause.wait(timeout_millis)

    def _mind(self, ahead: Prefetch | None) -> None:
        """Conclude nothing over what another thread fetched: while it did, this one may have received what follows."""
        if ahead is not None and ahead.is_anothers:
            self._order.leave_out()

    def _fetching(self) -> Prefetch | None:
        """Give what fetches ahead; None if nothing does, or something stands before it."""
        if self._recorder is not None or (self._sieve is not None and self._sieve.is_at_work):
            return None
        return self._prefetch

    def _fast_source(self) -> Any:
        """Give an endless iterator for loops that ask for a sieve behind each wait."""
        return self._source.each if self._recorder is not None or self._sieve is None else self._sieve.fast


def check_max_messages(max_messages: Any) -> None:
    """Refuse what cannot be a number of messages to receive.

    Raises:
        InvalidUse: it is not an int of 1 or more.
    """
    if isinstance(max_messages, bool) or not isinstance(max_messages, int) or max_messages < 1:
        raise InvalidUse(f"max_messages is an int, 1 or more, not {max_messages!r}.")
