"""Official client methods run over interruptible waits, without the official client's list of consumers."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, TypeVar

import pulsar
from _pulsar import ProducerConfiguration, TopicRegex

from . import threads
from .answer import Answer
from .messages import InnerClient, InnerProducer
from .schemas import SchemaText, text_of
from .signatures import Arguments, argument_error

T = TypeVar("T")
_official = pulsar.Client


def validate_arguments(method: Callable[..., object], named: Arguments) -> None:
    """Raise what `pulsar.Client.subscribe` or `create_producer` would raise, without opening anything."""
    with contextlib.suppress(_CheckedError):
        _call(method, _StubClient(), named)


def _call(method: Callable[..., T], client: object, named: Arguments) -> T:
    """Call an official method that opens something, with `client` as its self."""
    try:
        return method(client, **named)
    except TypeError as error:
        raise argument_error(error, named, "Nothing was opened.") from None


class _CheckedError(Exception):
    """Raised where the C++ client would be called: the arguments are valid."""


class _StubClient:
    """Stub client for official methods that open something; raises `_CheckedError` instead."""

    def __init__(self) -> None:
        self._client = self  # official methods call the methods of this attribute

    def create_producer(self, *_: object) -> None:
        raise _CheckedError

    subscribe = subscribe_topics = subscribe_pattern = create_producer


class InterruptibleClient:
    """Client that official methods can use, with waits that a Ctrl-C or a close ends.

    The official client keeps every consumer that it opens, so one that a Ctrl-C kept from the application would stay
    open. Its waits never end if the client is closed during them.
    """

    __slots__ = ("_ask", "_client", "_configure", "_inner", "_versions")
    _consumers: ClassVar[deque[object]] = deque(maxlen=0)
    """List that official methods append to; it keeps nothing."""

    def __init__(
        self,
        inner: InnerClient,
        ask: Callable[[Callable[[Answer], object]], Any],
        configure: Callable[..., object] = lambda _: None,
        versions: object = None,
    ) -> None:
        self._inner, self._ask, self._configure, self._versions = inner, ask, configure, versions
        self._client = self  # official methods call the methods of this attribute

    def open_producer(self, **named: object) -> pulsar.Producer:
        return _call(_official.create_producer, self, named)

    def open_receiver(self, method: Callable[..., T], *, schema: pulsar.schema.Schema, **named: object) -> T:
        """Open a consumer or a reader, which decodes by `versions`: the official method attaches another client."""
        schema.attach_client(self._versions)  # first: a listener may be called before this returns
        opened = _call(method, self, {**named, "schema": schema})
        schema.attach_client(self._versions)
        return opened

    def partitions_of(self, topic: str) -> list[str]:
        """Return the names of the topic's partitions, or the topic's own name if it is not partitioned."""
        partitions: list[str] = _official.get_topic_partitions(self, topic)
        return partitions

    def schema_of(self, topic: str) -> SchemaText | None:
        """Return the type and definition of a topic's latest schema; None without one, or if the lookup fails."""

        def ask(answer: Answer) -> None:
            try:
                found = self._inner.get_schema_info(topic, -1)
                answer(pulsar.Result.Ok, text_of(found))
            except Exception as error:  # noqa: BLE001  # raised where the result is awaited
                answer(error)

        # The binding has no asynchronous version. On another thread, a Ctrl-C ends the wait.
        with contextlib.suppress(pulsar.PulsarException):
            found: SchemaText = self._ask(
                lambda answer: threads.start(ask, answer, name="pulsar_ext-schema", daemon=False)
            )
            return found
        return None

    def create_producer(self, topic: str, configuration: ProducerConfiguration) -> InnerProducer:
        self._configure(configuration)
        begin = self._inner.create_producer_async_v2
        opened: InnerProducer = self._ask(lambda answer: begin(topic, configuration, answer.opened))
        return opened

    def subscribe(self, *arguments: object) -> object:
        return self._open(self._inner.subscribe_async_v2, *arguments)

    subscribe_topics = subscribe

    def subscribe_pattern(self, pattern: str, *arguments: object) -> object:
        return self._open(self._inner.subscribe_async_v2, TopicRegex(pattern), *arguments)

    def create_reader(self, *arguments: object) -> object:
        return self._open(self._inner.create_reader_async_v2, *arguments)

    def get_topic_partitions(self, topic: str) -> list[str]:
        partitions: list[str] = self._ask(partial(self._inner.get_topic_partitions_async, topic))
        return partitions

    def _open(self, begin: Callable[..., object], *arguments: object) -> Any:
        """Open an object; close it again if a Ctrl-C keeps it from the caller."""
        self._configure(arguments[-1])
        asked: list[Answer] = []

        def start(answer: Answer) -> None:
            asked.append(answer)  # before the call starts
            begin(*arguments, answer.opened)

        try:
            opened = self._ask(start)
            asked[0].drop_value()
            return opened  # noqa: TRY300  # an `else` could be interrupted before it
        except BaseException:
            for answer in asked:
                answer.close_abandoned()
            raise
