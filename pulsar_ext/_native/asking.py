"""Official methods of a client over waits for the C++ client that can end; it does not keep what they open."""

from __future__ import annotations

import contextlib
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import pulsar
from _pulsar import Error, TopicRegex

from . import threads
from .refusals import plainly
from .schemas import text_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from .answer import Answer

__all__ = ["AskingClient", "check_arguments"]

_official: Any = pulsar.Client


def check_arguments(method: Callable[..., Any], named: dict[str, Any]) -> None:
    """Check the arguments of `pulsar.Client.subscribe` or `create_producer`, as it does before it opens anything.

    Raises:
        TypeError, ValueError: one of them is not valid.
    """
    with contextlib.suppress(_CheckedError):
        _call(method, _CheckingClient(), named)


def _call(method: Callable[..., Any], client: Any, named: dict[str, Any]) -> Any:
    """Call a method that opens something, with a client in its place."""
    try:
        return method(client, **named)
    except TypeError as error:
        raise plainly(error, named, "Nothing was opened.") from None


class _CheckedError(Exception):
    """The C++ client would be asked now."""


class _CheckingClient:
    """Stands where official methods expect a client that opens something."""

    def __init__(self) -> None:
        self._client = self  # what the official methods call

    def create_producer(self, *_: object) -> None:
        raise _CheckedError

    subscribe = subscribe_topics = subscribe_pattern = create_producer


class AskingClient:
    """Stands where official methods expect a client.

    The official client keeps every consumer that it opens, and one that a Ctrl-C kept from the application would stay
    open there. Its waits for what is opened have no end if the client is closed meanwhile.

    Args:
        inner: the C++ client.
        ask: begins an asynchronous call and gives the value that it is answered with.
        configure: is given the configuration of each C++ producer, consumer or reader before it is opened.
        versions: where the schema objects of consumers and readers look up versions; see `pulsar_ext.schema.choice`.
    """

    __slots__ = ("_ask", "_client", "_configure", "_inner", "_versions")
    _consumers: ClassVar[deque[Any]] = deque(maxlen=0)
    """What the official methods add to; it keeps nothing."""

    def __init__(
        self,
        inner: Any,
        ask: Callable[[Callable[[Answer], object]], Any],
        configure: Callable[[Any], None] = lambda _: None,
        versions: Any = None,
    ) -> None:
        self._inner, self._versions = inner, versions
        self._ask = ask
        self._configure = configure
        self._client = self  # what the official methods call

    def open_producer(self, **named: Any) -> pulsar.Producer:
        """Create an official producer; the arguments are the official ones."""
        producer: pulsar.Producer = _call(_official.create_producer, self, named)
        return producer

    def open_consumer(self, **named: Any) -> pulsar.Consumer:
        """Open an official consumer; the arguments are the official ones."""
        named["schema"].attach_client(self._versions)  # first: a listener is called before this returns
        consumer: pulsar.Consumer = _call(_official.subscribe, self, named)
        named["schema"].attach_client(self._versions)
        return consumer

    def open_reader(self, **named: Any) -> pulsar.Reader:
        """Create an official reader; the arguments are the official ones."""
        named["schema"].attach_client(self._versions)
        reader: pulsar.Reader = _call(_official.create_reader, self, named)
        named["schema"].attach_client(self._versions)
        return reader

    def partitions_of(self, topic: str) -> list[str]:
        """Give the names of a topic's partitions; of a topic without partitions its own."""
        partitions: list[str] = _official.get_topic_partitions(self, topic)
        return partitions

    def schema_of(self, topic: str) -> tuple[str, str] | None:
        """Give the type and the definition of a topic's last schema; None if it has none, or that cannot be known now.

        Who opens something on that topic hears why it cannot be reached.
        """

        def ask(answer: Answer) -> None:
            try:
                found = self._inner.get_schema_info(topic, -1)
                answer(pulsar.Result.Ok, text_of(found))
            except Exception as error:  # noqa: BLE001  # whatever it is, it is the answer
                answer(error)

        # The binding has no asynchronous form of it: on a thread, a Ctrl-C ends the wait.
        with contextlib.suppress(pulsar.PulsarException):
            found: tuple[str, str] = self._ask(
                lambda answer: threads.start(ask, answer, name="pulsar_ext-schema", daemon=False)
            )
            return found
        return None

    def create_producer(self, topic: str, configuration: Any) -> Any:
        """Create a C++ producer."""
        self._configure(configuration)
        return self._ask(
            lambda answer: self._inner.create_producer_async_v2(topic, configuration, partial(_take, answer))
        )

    def subscribe(self, *arguments: Any) -> Any:
        """Open the C++ consumer of a topic, or of several."""
        return self._open(self._inner.subscribe_async_v2, *arguments)

    subscribe_topics = subscribe

    def subscribe_pattern(self, pattern: str, *arguments: Any) -> Any:
        """Open the C++ consumer of a pattern."""
        return self._open(self._inner.subscribe_async_v2, TopicRegex(pattern), *arguments)

    def create_reader(self, *arguments: Any) -> Any:
        """Open a C++ reader."""
        return self._open(self._inner.create_reader_async_v2, *arguments)

    def get_topic_partitions(self, topic: str) -> Any:
        """Ask the C++ client for the partitions."""
        return self._ask(partial(self._inner.get_topic_partitions_async, topic))

    def _open(self, begin: Callable[..., object], *arguments: Any) -> Any:
        """Open something; what a Ctrl-C keeps from whoever asked is closed again."""
        self._configure(arguments[-1])
        asked: list[Answer] = []

        def noted(answer: Answer) -> None:
            asked.append(answer)  # before it begins
            begin(*arguments, partial(_take, answer))

        try:
            opened = self._ask(noted)
            asked[0].let_go()
            return opened  # noqa: TRY300  # an `else` could be interrupted before it
        except BaseException:
            for answer in asked:
                answer.close_again()
            raise


def _take(answer: Answer, outcome: Any) -> None:
    """Take what was opened, or the error with the C++ client's words for it."""
    if isinstance(outcome, Error):
        answer(outcome.error, outcome.message)
    else:
        answer(pulsar.Result.Ok, outcome)
