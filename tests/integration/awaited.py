"""The asyncio client in the shape of the blocking one, so that both go through the same tests.

Each call runs in an event loop on a thread of its own and is waited for. Nothing but that is done here.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from typing import Any

import _pulsar

import pulsar_ext
import pulsar_ext.asyncio
from pulsar_ext.asyncio import Client, Consumer, GroupReader, Producer, RangeReaderGroup, Reader

_KINDS = (Consumer, GroupReader, Producer, RangeReaderGroup, Reader)


class Awaited:
    """One object of the asyncio client."""

    def __init__(self, awaited: Any, loop: Loop) -> None:
        self.awaited, self._loop = awaited, loop

    def __getattr__(self, name: str) -> Any:
        member = getattr(self.awaited, name)
        if not callable(member):
            return member

        def call(*args: Any, **kwargs: Any) -> Any:
            return self._wrap(self._loop.run(member, *args, **kwargs))

        return call

    def _wrap(self, result: Any) -> Any:
        if isinstance(result, _KINDS):
            kind = {Producer: AwaitedProducer, RangeReaderGroup: AwaitedGroup}.get(type(result), AwaitedReceiver)
            return kind(result, self._loop)
        if isinstance(result, pulsar_ext.asyncio.ReaderBuilder | pulsar_ext.asyncio.ConsumerBuilder):
            return Awaited(result, self._loop)
        return pulsar_ext.MessageId.wrap(result) if isinstance(result, _pulsar.MessageId) else result

    def close(self) -> None:
        """Close; again does nothing, as with the blocking client."""
        with contextlib.suppress(pulsar_ext.AlreadyClosed):
            self._loop.run(self.awaited.close)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AwaitedClient(Awaited):
    """`pulsar_ext.asyncio.Client`."""

    def __init__(self, service_url: str, **options: Any) -> None:
        super().__init__(Client(service_url, **options), Loop())

    def create_producer(self, topic: str, *args: Any, **kwargs: Any) -> Any:
        """Create a producer, without batches by default as the blocking client does."""
        kwargs.setdefault("batching_enabled", False)
        return self._wrap(self._loop.run(self.awaited.create_producer, topic, *args, **kwargs))

    def subscribe(self, *args: Any, message_listener: Any = None, **kwargs: Any) -> Any:
        """Subscribe; a listener gets the consumer in the blocking shape."""
        if message_listener is not None:
            kwargs["message_listener"] = lambda consumer, message: message_listener(self._wrap(consumer), message)
        return self._wrap(self._loop.run(self.awaited.subscribe, *args, **kwargs))

    def close(self) -> None:
        """Close the client and its loop."""
        super().close()
        self._loop.close()

    def _admin_api(self) -> Any:
        return self.awaited.blocking._admin_api()


class AwaitedProducer(Awaited):
    """`pulsar_ext.asyncio.Producer`."""

    def send_async(self, content: Any, callback: Any, **options: Any) -> None:
        """Begin an awaited send, and tell the callback how it ends."""

        async def send() -> None:
            try:
                sent = await self.awaited.send(content, **options)
            except pulsar_ext.asyncio.PulsarException as error:
                result, sent = error.error(), pulsar_ext.MessageId()
            else:
                result = pulsar_ext.Result.Ok
            if callback is not None:
                callback(result, sent)

        self._loop.begin(send)

    def flush(self) -> None:
        """Flush, and wait for the sends that have begun."""
        self._loop.turn()
        self._loop.run(self.awaited.flush)
        self._loop.settle()


class AwaitedReceiver(Awaited):
    """A consumer or a reader; iterating a reader of key ranges gives what is there and ends, as the blocking one."""

    def __iter__(self) -> Any:
        while self.has_message_available():
            yield self.read_next(10_000)

    def ack_scope(self, *args: Any, **kwargs: Any) -> Any:
        """Give the block as a blocking context manager."""
        scope = self.awaited.ack_scope(*args, **kwargs)
        return _Scope(scope, self._loop)


class AwaitedGroup(Awaited):
    """A group of readers."""

    @property
    def readers(self) -> tuple[Any, ...]:
        """The readers in the blocking shape."""
        return tuple(self._wrap(reader) for reader in self.awaited.readers)

    def __iter__(self) -> Any:
        return iter(self.readers)

    def __len__(self) -> int:
        return len(self.awaited)


class _Scope:
    def __init__(self, scope: Any, loop: Loop) -> None:
        self._scope, self._loop = scope, loop

    def __enter__(self) -> Any:
        return self._loop.run(self._scope.__aenter__)

    def __exit__(self, *error: object) -> Any:
        return self._loop.run(self._scope.__aexit__, *error)


class Loop:
    """An event loop on a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._begun: set[asyncio.Task[Any]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a function in the loop; if it gives something to await, wait for that."""

        async def call() -> Any:
            result = function(*args, **kwargs)
            return await result if inspect.isawaitable(result) else result

        return asyncio.run_coroutine_threadsafe(call(), self._loop).result()

    def begin(self, function: Any) -> None:
        """Begin a task, in the order of the calls."""

        def create() -> None:
            task = self._loop.create_task(function())
            self._begun.add(task)
            task.add_done_callback(self._begun.discard)

        self._loop.call_soon_threadsafe(create)

    def turn(self) -> None:
        """Let what has begun come to its first wait."""
        self.run(asyncio.sleep, 0)
        self.run(asyncio.sleep, 0)

    def settle(self) -> None:
        """Wait for everything that has begun."""

        async def wait() -> None:
            if self._begun:
                await asyncio.wait(self._begun)

        self.run(wait)

    def close(self) -> None:
        """End the thread and the loop."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
