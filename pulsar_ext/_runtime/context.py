"""What a client shares with its parts, so that none of them needs the client itself.

With it the broker's version, as far as acknowledgements depend on it, and recent answers of the broker: many consumers
of a client ask for the same topics.
"""

from __future__ import annotations

import logging
import math
import time
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple, Protocol, TypeVar
from weakref import WeakSet

import pulsar

from pulsar_ext._native.locks import Lock
from pulsar_ext._native.results import NotConnected
from pulsar_ext.chunks.resolver import Resolver
from pulsar_ext.errors import AdminRequired, AdminUnauthorized, AdminUnavailable, PulsarExtError

from .callbacks import CallbackGuard
from .cluster import ClusterWatch
from .ending import OpenSenders
from .retry import retry
from .scheduler import ClientScheduler, ConnectionLooks, OutcomeScheduler

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from pulsar_ext._native.answer import Answer
    from pulsar_ext.admin import PulsarAdmin


_ASK_AGAIN_SECONDS: Final = 60.0
"""Interval between questions while the admin API does not answer."""
_PASSES_OVER: Final = 4
"""First major version that passes over acknowledgements of unknown ledgers on every type of subscription."""


class BrokerVersion:
    """The version of the broker that a client is connected to; it is asked for in the background.

    Args:
        ask: asks the admin API for the version.
        run: calls a function on another thread.
    """

    def __init__(self, ask: Callable[[], str], run: Callable[[Callable[[], object]], object]) -> None:
        self._ask, self._run = ask, run
        self._due, self._passes_over = -math.inf, False

    def forget(self) -> None:
        """Ask again: the client is connected to another cluster."""
        self._due, self._passes_over = -math.inf, False

    @property
    def passes_over_unknown(self) -> bool:
        """If the broker is known to pass over acknowledgements of a ledger that cannot exist.

        Brokers before 4.0 close the connection of a Shared or Key_Shared consumer that sends one, and what it
        acknowledged with it is lost.
        """
        self.learn()
        return self._passes_over

    def learn(self) -> None:
        """Ask in the background, unless it is known or was asked within a minute."""
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + _ASK_AGAIN_SECONDS
            self._run(self._learn)

    def _learn(self) -> None:
        try:
            self._passes_over = passes_over_unknown(self._ask())
        except (PulsarExtError, pulsar.PulsarException):  # no admin API answers, or the client is closed
            return
        self._due = math.inf


def passes_over_unknown(version: str) -> bool:
    """Return if a broker of a version such as `4.2.4` passes over acknowledgements of unknown ledgers."""
    major = version.partition(".")[0]
    return major.isdecimal() and int(major) >= _PASSES_OVER


T = TypeVar("T")
_SECONDS: Final = 0.5


class _Known(NamedTuple):
    asked: float
    answer: Any


class RecentAnswers:
    """The answers of the last half second; used by one thread."""

    def __init__(self) -> None:
        self._known: dict[Hashable, _Known] = {}
        """The oldest first."""

    def forget(self) -> None:
        """Drop every answer: another cluster is asked from now on."""
        self._known.clear()

    def ask(self, question: Hashable, ask: Callable[[], T]) -> T:
        """Give an answer.

        Args:
            question: names it.
            ask: asks it anew; what it raises is no answer.
        """
        now = time.monotonic()
        while self._known and next(iter(self._known.values())).asked + _SECONDS <= now:
            del self._known[next(iter(self._known))]
        known = self._known.get(question)
        if known is None:
            known = self._known[question] = _Known(time.monotonic(), ask())
        answer: T = known.answer
        return answer


Happening = Literal["dead letter", "closed hole"]
"""What a consumer does by itself, and nobody hears of otherwise."""

_AGAIN_SECONDS = 0.1
_log = logging.getLogger("pulsar_ext")


class MessageOpener(Protocol):
    """What opens producers, consumers and readers of this library on a topic: a `Client`."""

    def subscribe(self, topic: Any, subscription_name: str, *args: Any, **kwargs: Any) -> Any:
        """Subscribe, as `Client.subscribe()`."""
        ...

    def _open_consumer_(self, named: dict[str, Any], **options: Any) -> Any:
        """Subscribe with the official arguments by name."""
        ...

    def _open_reader_(self, named: dict[str, Any], **options: Any) -> Any:
        """Create a reader with the official arguments by name."""
        ...

    def create_reader(self, topic: str, start_message_id: Any, *args: Any, **kwargs: Any) -> Any:
        """Create a reader, as `Client.create_reader()`."""
        ...

    def create_producer(self, topic: str, **kwargs: Any) -> Any:
        """Create a producer, as `Client.create_producer()`."""
        ...

    def get_topic_partitions(self, topic: str) -> list[str]:
        """Give the names of a topic's partitions, as `Client.get_topic_partitions()`."""
        ...

    def _received_by_(self) -> list[Any]:
        """Give the consumers and readers that are open, as `Client._received_by_()`."""
        ...


class AdminChoice(Protocol):
    """The admin APIs of the clusters that a client may be connected to."""

    def __call__(self) -> PulsarAdmin:
        """Return that of the cluster that the client is connected to."""
        ...

    def close(self) -> None:
        """Close what ends with the client."""
        ...


class ClientContext:
    """The shared means of one client.

    Args:
        opener: the client, for what needs a whole consumer or reader.
        admin: an admin API that is there already; None to make one when it is first needed.
        make_admin: makes it.
        choose_admin: returns the admin API of the cluster that the client is connected to, instead of both.
        owns_admin: whether it is closed with the client; not if the application gave it.
        open_reader: opens an official reader on a topic, inclusive of the message that a C++ id names.
        schema_info: asks the broker for a version of a topic's schema, as the C++ client has it.
        operation_timeout_seconds: the client's.
        service_url: returns the URL that the client connects to; None if it never changes.
    """

    begun: ClassVar[list[Callable[[ClientContext], object]]] = []
    """What hears of each client as it is made, before it opens anything."""

    def __init__(
        self,
        opener: MessageOpener,
        *,
        admin: PulsarAdmin | None,
        make_admin: Callable[[], PulsarAdmin],
        choose_admin: AdminChoice | None = None,
        owns_admin: bool,
        open_reader: Callable[[str, Any], pulsar.Reader],
        schema_info: Callable[[str, int], Any],
        operation_timeout_seconds: int,
        service_url: Callable[[], str] | None = None,
    ) -> None:
        self.opener = opener
        self.open_reader, self.schema_info = open_reader, schema_info
        self.operation_timeout_seconds = operation_timeout_seconds
        self.scheduler = ClientScheduler(
            "pulsar-ext-acks",
            logging.getLogger("pulsar_ext.acks"),
            "Acknowledgements could not be sent; they are kept",
        )
        self.connection_looks = ConnectionLooks(self.scheduler)
        self.inquiries = ClientScheduler(
            "pulsar-ext-inquiries",
            logging.getLogger("pulsar_ext"),
            "It could not be found out what to redeliver, or where a cursor is; that is tried again",
        )
        """For what asks the admin API, or reads, and may wait for the answer: acknowledgements must not."""
        self.failover = ClientScheduler(
            "pulsar-ext-failover",
            logging.getLogger("pulsar_ext"),
            "A change of the cluster could not be followed; that is tried again",
        )
        """For that alone: consumers and readers are closed before the C++ client connects them to another cluster."""
        self.outcomes = OutcomeScheduler(
            "pulsar-ext-outcomes", logging.getLogger("pulsar_ext"), "What became of a message could not be reported"
        )
        self.recent = RecentAnswers()
        """What was asked by `inquiries`, on its thread."""
        self.broker_version = BrokerVersion(lambda: self.admin_api().broker_version(), self.inquiries.run)
        self.callbacks = CallbackGuard()
        self.senders = OpenSenders()
        """What may have messages pending; each adds itself."""
        self.interceptors: list[tuple[type[Any], Callable[[], Any]]] = []
        """What makes those of every producer, consumer or reader, with the kind that it makes."""
        self.chains: WeakSet[Any] = WeakSet()
        """The interceptors of producers, consumers and readers, which are closed with the client."""
        self.producers: WeakSet[Any] = WeakSet()
        """The application's producers."""
        self.tell: Callable[[Happening, str, str, int], object] = _nobody
        """Hears what happened, on which topic and subscription, and how often."""
        self.calls_back = False
        """Whether the application's code may run on the thread that answers asynchronous receives."""
        self._choose_admin = choose_admin
        self._admin, self._make_admin, self._owns_admin = admin, make_admin, owns_admin
        self._admin_lock = Lock()
        self._released = False
        self._told_admin_is_required = False
        self.resolver = Resolver(self.admin_api, open_reader)
        self.cluster = ClusterWatch(service_url, opener._received_by_, self._forget_cluster)
        if self.cluster.may_change:
            self.failover.watch(self.cluster)
        for hear in self.begun:
            hear(self)

    def admin_api(self) -> PulsarAdmin:
        """Return the admin API.

        Raises:
            pulsar.AlreadyClosed: the client is closed. No other API is derived in the place of the one that it had.
            AdminUnavailable: none was given, and none can be derived from the service URL.
            InvalidUse: the environment's `PULSAR_ADMIN_URL` cannot be used.
            AdminRequired: the client's credentials are not known here, or would go where nobody said that a broker is;
                it is logged once, because what looks after the client in the background goes on without an admin API.
        """
        with self._admin_lock:
            if self._released:
                self.senders.refuse_ended()
            if self._choose_admin is None:
                return self._only_admin()
        return self._choose_admin()  # which may ask each of them

    def _only_admin(self) -> PulsarAdmin:
        if self._admin is None:
            try:
                self._admin = self._make_admin()
            except AdminRequired as error:
                if not self._told_admin_is_required:
                    self._told_admin_is_required = True
                    _log.warning("No admin API is asked by this client. %s", error)
                raise
        return self._admin

    def _forget_cluster(self) -> None:
        """Drop what is known of the cluster that the client was connected to before."""
        self.inquiries.run(self.recent.forget)
        self.resolver.forget()
        self.broker_version.forget()

    def keeps_batch_indexes(self) -> bool | None:
        """Return if the broker keeps acknowledgements inside batches; None if it may not or cannot be asked."""
        try:
            settings = self.admin_api().broker_configuration()
        except (AdminUnauthorized, AdminUnavailable):
            return None
        return settings.get("acknowledgmentAtBatchIndexLevelEnabled") == "true"

    def insist(
        self, begin: Callable[[Answer], object], again: type[Exception] | tuple[type[Exception], ...] = NotConnected
    ) -> Any:
        """Begin an asynchronous call of the C++ client, again while the broker cannot be reached; give its value.

        The blocking calls do not tell when the connection ends before the answer: they return.

        Args:
            begin: what may be done twice.
            again: what it says while the broker cannot be reached.

        Raises:
            pulsar.PulsarException: it failed, or the broker could not be reached for `operation_timeout_seconds`;
                `AlreadyClosed`, if the client is closed or shut down meanwhile.
        """
        return self.persist(partial(self.senders.ask, begin), again)

    def persist(self, call: Callable[[], Any], again: type[Exception] | tuple[type[Exception], ...]) -> Any:
        """Call, again for `operation_timeout_seconds` while it raises what may be over soon; give what it gives."""
        deadline = time.monotonic() + self.operation_timeout_seconds
        return retry(
            call, lambda error: isinstance(error, again) and time.monotonic() < deadline, seconds=_AGAIN_SECONDS
        )

    def close_schedulers(self) -> None:
        """Close what the schedulers watch, and have them watch nothing any more; acknowledgements leave last."""
        self.outcomes.close()
        self.failover.close()
        self.inquiries.close()
        self.scheduler.close()

    def _after_fork_(self, refusal: Any) -> None:
        """Refuse to schedule in this child process; a scheduler's lock may have been held at the fork, for good."""
        self.scheduler = self.inquiries = self.failover = refusal

    def release(self) -> None:
        """Close what interceptors are left, of what was not closed by itself, and the admin API if it is ours."""
        for chain in list(self.chains):
            chain.close()
        with self._admin_lock:
            self._released = True
            if self._owns_admin and self._admin is not None:
                self._admin.close()
        if self._choose_admin is not None:
            self._choose_admin.close()


def _nobody(*_: object) -> None:
    """Hear nothing."""
