"""The asyncio client with the interface of the blocking one, so that both run the same tests.

Each call runs in an event loop on another thread, and the calling thread waits for its result.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
import time
from typing import Any

import _pulsar

import pulsar_ext
import pulsar_ext.asyncio
from pulsar_ext.admin import AsyncPulsarAdmin
from pulsar_ext.asyncio import Client, Consumer, GroupReader, Producer, RangeReaderGroup, Reader, Reading

_LISTENERS = {"message_listener", "reader_listener"}
_COMPLETION_SECONDS = 60.0
_PLAIN = (
    pulsar_ext.asyncio.ConsumerBuilder,
    pulsar_ext.asyncio.ReaderBuilder,
    pulsar_ext.asyncio.Replier,
    pulsar_ext.asyncio.Requester,
)
_KINDS = (Consumer, GroupReader, Producer, RangeReaderGroup, Reader)


def blocking_of(made: Any) -> Any:
    """Return the blocking object of either client, for tests that inspect it."""
    return made.awaited.blocking if isinstance(made, Awaited) else made


class Awaited:
    """Blocking wrapper of an object of the asyncio client."""

    def __init__(self, awaited: Any, loop: Loop) -> None:
        self.awaited, self._loop = awaited, loop

    def __getattr__(self, name: str) -> Any:
        member = getattr(self.awaited, name)
        if not callable(member):
            return member

        def call(*args: Any, **kwargs: Any) -> Any:
            if name in _LISTENERS:
                args = tuple(map(self._on_thread, args))
            for listener in _LISTENERS & kwargs.keys():
                kwargs[listener] = kwargs[listener] and self._on_thread(kwargs[listener])
            return self._wrap(self._loop.run(member, *args, **kwargs))

        return call

    def _wrap(self, result: Any) -> Any:
        if isinstance(result, _KINDS):
            kind = {Producer: AwaitedProducer, RangeReaderGroup: AwaitedGroup}.get(type(result), AwaitedReceiver)
            return kind(result, self._loop)
        if isinstance(result, pulsar_ext.asyncio.Replies | Reading):
            return AwaitedIterator(result, self._loop)
        if isinstance(result, _PLAIN):
            return Awaited(result, self._loop)
        return pulsar_ext.MessageId.wrap(result) if isinstance(result, _pulsar.MessageId) else result

    def _on_thread(self, listener: Any) -> Any:
        """Return an async listener that runs this one on a thread, where it may wait for the loop."""

        async def listen(receiving: Any, message: Any) -> None:
            await asyncio.to_thread(listener, self._wrap(receiving), message)

        return listen

    def close(self) -> None:
        """Close; a second close does nothing, as with the blocking client."""
        with contextlib.suppress(pulsar_ext.AlreadyClosed):
            self._loop.run(self.awaited.close)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AwaitedClient(Awaited):
    """Blocking wrapper of `pulsar_ext.asyncio.Client`."""

    def __init__(self, client: Client) -> None:
        super().__init__(client, Loop())

    def create_producer(self, topic: str, *args: Any, **kwargs: Any) -> Any:
        """Create a producer, by default without batches like the blocking client."""
        kwargs.setdefault("batching_enabled", False)
        producer = self._wrap(self._loop.run(self.awaited.create_producer, topic, *args, **kwargs))
        producer.batches = kwargs["batching_enabled"]
        return producer

    def close(self) -> None:
        """Close, and wait for the results of the sends that have begun."""
        super().close()
        self._loop.wait_for_all()

    def end(self) -> None:
        """Close the client and the loop."""
        self.close()
        self._loop.close()

    @property
    def context(self) -> Any:
        """The context of the blocking client."""
        return self.awaited.blocking.context


def awaited_admin(url: str, **options: Any) -> Any:
    """Return an `AsyncPulsarAdmin` with the interface of a `PulsarAdmin`."""
    return Awaited(AsyncPulsarAdmin(url, **options), Loop())


class AwaitedProducer(Awaited):
    """Blocking wrapper of `pulsar_ext.asyncio.Producer`."""

    batches = False

    def send(self, content: Any, **options: Any) -> Any:
        """Send; send the open batch at once, like the blocking `send()`."""

        async def send() -> Any:
            sending = asyncio.ensure_future(self.awaited.send(content, **options))
            await asyncio.sleep(0)
            if self.batches and not sending.done():
                with contextlib.suppress(pulsar_ext.PulsarException):  # the send raises the error
                    await self.awaited.flush()
            return await sending

        return self._loop.run(send)

    def send_async(self, content: Any, callback: Any, **options: Any) -> None:
        """Begin an awaited send, and call the callback with its result; raise if it is rejected at once."""

        async def send() -> None:
            sent = pulsar_ext.MessageId()
            try:
                sent = await self.awaited.send(content, **options)
            except pulsar_ext.DuplicateMessage:
                result = pulsar_ext.DUPLICATE_MESSAGE
            except pulsar_ext.asyncio.PulsarException as error:
                result = error.error()
            else:
                result = pulsar_ext.Result.Ok
            if callback is not None:
                callback(result, sent)

        self._loop.begin(send)

    def flush(self) -> None:
        """Flush until the sends that have begun have ended."""
        try:
            self._loop.run(self.awaited.flush)
        finally:
            while not self._loop.all_done():
                with contextlib.suppress(pulsar_ext.PulsarException):
                    self._loop.run(self.awaited.flush)

    def close(self) -> None:
        """Close, and wait for the results of the sends that have begun."""
        super().close()
        self._loop.wait_for_all()


class AwaitedReceiver(Awaited):
    """Blocking wrapper of a consumer or reader.

    As with the blocking client, the iteration of a range reader ends without a message, and that of a consumer when it
    is closed.
    """

    def __iter__(self) -> Any:
        with contextlib.suppress(StopAsyncIteration):
            while isinstance(self.awaited, Consumer):
                yield self._loop.run(anext, self.awaited)
        while not isinstance(self.awaited, Consumer) and self.has_message_available():
            yield self.read_next(10_000)

    def ack_scope(self, *args: Any, **kwargs: Any) -> Any:
        """Return a blocking context manager of the block."""
        scope = self.awaited.ack_scope(*args, **kwargs)
        return _Scope(scope, self._loop)


class AwaitedIterator(Awaited):
    """Blocking wrapper of the replies to a request, or of a reading."""

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        end = object()
        reply = self._loop.run(anext, self.awaited, end)
        if reply is end:
            raise StopIteration
        return reply


class AwaitedGroup(Awaited):
    """Blocking wrapper of a group of readers."""

    @property
    def readers(self) -> tuple[Any, ...]:
        """The readers with the blocking interface."""
        return tuple(self._wrap(reader) for reader in self.awaited.readers)

    def __iter__(self) -> Any:
        return iter(self.readers)

    def __len__(self) -> int:
        return len(self.awaited)

    def __repr__(self) -> str:
        return repr(self.awaited)


class _Scope:
    def __init__(self, scope: Any, loop: Loop) -> None:
        self._scope, self._loop = scope, loop

    def __enter__(self) -> Any:
        return self._loop.run(self._scope.__aenter__)

    def __exit__(self, *error: object) -> Any:
        return self._loop.run(self._scope.__aexit__, *error)


class Loop:
    """Event loop on a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a function in the loop, await its result if that is awaitable, and return it."""

        async def call() -> Any:
            result = function(*args, **kwargs)
            return await result if inspect.isawaitable(result) else result

        return asyncio.run_coroutine_threadsafe(call(), self._loop).result()

    def begin(self, function: Any) -> None:
        """Start a task and let it run until it first waits; raise its exception if it has one by then."""

        async def create() -> None:
            task = self._loop.create_task(function())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            await asyncio.sleep(0)
            if task.done():
                task.result()

        if threading.current_thread() is self._thread:  # in a callback
            self._tasks.add(self._loop.create_task(function()))
        else:
            asyncio.run_coroutine_threadsafe(create(), self._loop).result()

    def wait_for_all(self) -> None:
        """Wait until all started tasks have ended."""
        deadline = time.monotonic() + _COMPLETION_SECONDS
        while not self.all_done():
            assert time.monotonic() < deadline, "a send has no result"

    def all_done(self) -> bool:
        """Wait briefly for all started tasks; return whether they have ended."""

        async def wait() -> bool:
            self._tasks -= {task for task in self._tasks if task.done()}
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=0.05)
            return not any(not task.done() for task in self._tasks)

        return bool(self.run(wait))

    def close(self) -> None:
        """Stop the thread and the loop."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
