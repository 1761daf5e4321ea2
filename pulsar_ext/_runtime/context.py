"""The services of a client that its consumers, readers and producers share, without a reference to the client.

It includes the broker's version, which acknowledgements depend on, and recent answers of the broker, because many
consumers of a client query the same topics.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Hashable
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar, Final, Literal, Protocol, TypeVar
from weakref import WeakSet

import pulsar

from pulsar_ext._native.answer import Answer
from pulsar_ext._native.locks import Lock
from pulsar_ext._native.messages import InnerMessageId
from pulsar_ext._native.results import NotConnected
from pulsar_ext._native.schemas import SchemaInfo
from pulsar_ext._native.signatures import Arguments
from pulsar_ext.admin import PulsarAdmin
from pulsar_ext.chunks.resolver import Resolver
from pulsar_ext.errors import AdminRequired, AdminUnauthorized, AdminUnavailable, PulsarExtError

from .callbacks import CallbackGuard
from .cluster import ClusterWatch
from .ending import OpenSenders
from .retry import retry
from .scheduler import ClientScheduler, ConnectionPolls, OutcomeScheduler

T = TypeVar("T")
Happening = Literal["dead letter", "closed hole"]
"""An action that a consumer takes by itself, without the application."""
_ASK_AGAIN_SECONDS: Final = 60.0
"""Interval of queries while the admin API does not answer."""
_FIRST_SKIPPING_MAJOR: Final = 4
"""First major version that ignores acknowledgements of unknown ledgers on every type of subscription."""
_RECENT_SECONDS: Final = 0.5
_RETRY_SECONDS: Final = 0.1
_log = logging.getLogger("pulsar_ext")


class BrokerVersion:
    """The version of the broker that a client is connected to; it is queried in the background."""

    def __init__(self, ask: Callable[[], str], run: Callable[[Callable[[], object]], object]) -> None:
        self._ask, self._run = ask, run
        self.forget()

    def forget(self) -> None:
        """Drop the version: the client is connected to another cluster."""
        self._due, self._skips_unknown = -math.inf, False

    @property
    def skips_unknown_ledgers(self) -> bool:
        """True if the broker is known to ignore acknowledgements of a ledger that cannot exist.

        Brokers before 4.0 close the connection of a Shared or Key_Shared consumer that sends one, and other
        acknowledgements of that request are lost.
        """
        self.learn()
        return self._skips_unknown

    def learn(self) -> None:
        """Query the version in the background, unless it is known or was queried within a minute."""
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + _ASK_AGAIN_SECONDS
            self._run(self._learn)

    def _learn(self) -> None:
        with suppress(PulsarExtError, pulsar.PulsarException):  # no admin API answers, or the client is closed
            self._skips_unknown = skips_unknown_ledgers(self._ask())
            self._due = math.inf


def skips_unknown_ledgers(version: str) -> bool:
    """Return if a broker of a version such as `4.2.4` ignores acknowledgements of unknown ledgers."""
    major = version.partition(".")[0]
    return major.isdecimal() and int(major) >= _FIRST_SKIPPING_MAJOR


class RecentAnswers:
    """The answers of the last half second; used by one thread."""

    def __init__(self) -> None:
        self._known: dict[Hashable, tuple[float, Any]] = {}
        """The time and the answer of each question, the oldest first."""

    def forget(self) -> None:
        """Drop every answer: another cluster is queried from now on."""
        self._known.clear()

    def ask(self, question: Hashable, ask: Callable[[], T]) -> T:
        """Return the recent answer of a question, or ask; an exception is not kept."""
        now = time.monotonic()
        while self._known and next(iter(self._known.values()))[0] + _RECENT_SECONDS <= now:
            del self._known[next(iter(self._known))]
        if question not in self._known:
            self._known[question] = time.monotonic(), ask()
        found: T = self._known[question][1]
        return found


class MessageOpener(Protocol):
    """Opens producers, consumers and readers of this library on a topic: a `Client`."""

    def subscribe(self, topic: Any, subscription_name: str, *args: Any, **kwargs: Any) -> Any: ...
    def create_reader(self, topic: str, start_message_id: Any, *args: Any, **kwargs: Any) -> Any: ...
    def create_producer(self, topic: str, *args: Any, **kwargs: Any) -> Any: ...
    def get_topic_partitions(self, topic: str) -> list[str]: ...
    def _subscribe_(self, given: Arguments, **options: object) -> Any: ...
    def _open_reader_(self, named: Arguments, **options: Any) -> Any: ...
    def _open_receivers_(self) -> list[Any]: ...


class AdminChoice(Protocol):
    """Returns the admin API of the cluster that a client is connected to; closes those that end with the client."""

    def __call__(self) -> PulsarAdmin: ...
    def close(self) -> None: ...


class _Chain(Protocol):
    def close(self) -> None: ...


class ClientContext:
    """The shared services of one client.

    Its admin API is `admin`, the application's, or else `make_admin()`, when it is first needed; or it depends on the
    cluster, by `choose_admin`. `service_url` is None if it never changes.
    """

    begun: ClassVar[list[Callable[[ClientContext], object]]] = []
    """Functions that are called with each new client, before it opens anything."""

    def __init__(
        self,
        opener: MessageOpener,
        *,
        admin: PulsarAdmin | None,
        make_admin: Callable[[], PulsarAdmin],
        choose_admin: AdminChoice | None = None,
        owns_admin: bool,
        open_reader: Callable[[str, InnerMessageId], pulsar.Reader],
        schema_info: Callable[[str, int], SchemaInfo],
        operation_timeout_seconds: int,
        service_url: Callable[[], str] | None = None,
    ) -> None:
        self.opener = opener
        self.open_reader, self.schema_info = open_reader, schema_info
        self.operation_timeout_seconds = operation_timeout_seconds
        self.scheduler = ClientScheduler(
            "pulsar-ext-acks",
            logging.getLogger("pulsar_ext.acks"),
            "Acknowledgements could not be sent; they stay pending",
        )
        self.connection_polls = ConnectionPolls(self.scheduler)
        self.inquiries = ClientScheduler(
            "pulsar-ext-inquiries", _log, "Redelivery or cursor lookup failed; it is retried"
        )
        """For requests to the admin API and reads, which may block and must not delay acknowledgements."""
        self.failover = ClientScheduler(
            "pulsar-ext-failover", _log, "A change of the cluster could not be followed; it is retried"
        )
        """For cluster changes: closes consumers and readers before the C++ client connects them to the new cluster."""
        self.outcomes = OutcomeScheduler("pulsar-ext-outcomes", _log, "The result of a message could not be reported")
        self.recent = RecentAnswers()
        """Answers to queries of `inquiries`, used on its thread."""
        self.broker_version = BrokerVersion(lambda: self.admin_api().broker_version(), self.inquiries.run)
        self.callbacks = CallbackGuard()
        self.senders = OpenSenders()
        """Producers that may have pending messages; each adds itself."""
        self.interceptors: list[tuple[type, Callable[[], object]]] = []
        """Factories of interceptors for every producer, consumer or reader, with the kind that each creates."""
        self.chains: WeakSet[_Chain] = WeakSet()
        """The interceptors of producers, consumers and readers, which are closed with the client."""
        self.producers: WeakSet[Any] = WeakSet()
        """The application's producers."""
        self.report_event: Callable[[Happening, str, str, int], object] = lambda *_: None
        """Called with an event, its topic and subscription, and a count."""
        self._choose_admin = choose_admin
        self._admin, self._make_admin, self._owns_admin = admin, make_admin, owns_admin
        self._admin_lock = Lock()
        self._released = False
        self._warned_admin_required = False
        self.resolver = Resolver(self.admin_api, open_reader)
        self.cluster = ClusterWatch(service_url, opener._open_receivers_, self._forget_cluster)
        if self.cluster.may_change:
            self.failover.watch(self.cluster)
        for notify in self.begun:
            notify(self)

    def admin_api(self) -> PulsarAdmin:
        """Return the admin API.

        Raises:
            pulsar.AlreadyClosed: the client is closed.
            AdminUnavailable: no admin API was configured, and none can be derived from the service URL.
            InvalidUse: the environment's `PULSAR_ADMIN_URL` is invalid.
            AdminRequired: the client's credentials are not known here, or would be sent to a URL that was not
                configured as a broker's. It is logged once, because background tasks continue without an admin API.
        """
        with self._admin_lock:
            if self._released:
                self.senders.raise_if_ended()
            if self._choose_admin is None:
                if self._admin is None:
                    self._admin = self._make_only_admin()
                return self._admin
        return self._choose_admin()  # outside the lock: it may query each of them

    def _make_only_admin(self) -> PulsarAdmin:
        try:
            return self._make_admin()
        except AdminRequired as error:
            if not self._warned_admin_required:
                self._warned_admin_required = True
                _log.warning("This client uses no admin API. %s", error)
            raise

    def _forget_cluster(self) -> None:
        self.inquiries.run(self.recent.forget)
        self.resolver.forget()
        self.broker_version.forget()

    def keeps_batch_indexes(self) -> bool | None:
        """Return if the broker persists acknowledgements inside batches; None if the admin API does not answer."""
        try:
            settings = self.admin_api().broker_configuration()
        except (AdminUnauthorized, AdminUnavailable):
            return None
        return settings.get("acknowledgmentAtBatchIndexLevelEnabled") == "true"

    def call_with_retries(
        self, begin: Callable[[Answer], object], again: type[Exception] | tuple[type[Exception], ...] = NotConnected
    ) -> Any:
        """Begin an idempotent call of the C++ client, retry while the broker cannot be reached; return its value.

        The blocking calls of the C++ client return without an error if the connection ends before the answer.
        """
        return self.persist(partial(self.senders.ask, begin), again)

    def persist(self, call: Callable[[], T], again: type[Exception] | tuple[type[Exception], ...]) -> T:
        """Call, and retry the errors `again` for `operation_timeout_seconds`; return the result."""
        deadline = time.monotonic() + self.operation_timeout_seconds
        return retry(
            call, lambda error: isinstance(error, again) and time.monotonic() < deadline, seconds=_RETRY_SECONDS
        )

    def close_schedulers(self) -> None:
        """Close the schedulers and everything they watch; that of acknowledgements is closed last."""
        self.outcomes.close()
        self.failover.close()
        self.inquiries.close()
        self.scheduler.close()

    def _after_fork_(self, raising: Any) -> None:
        """Make scheduling raise in this child process, as a scheduler's lock may have been held at the fork."""
        self.scheduler = self.inquiries = self.failover = raising

    def release(self) -> None:
        """Close the remaining interceptors, and the admin API if the client owns it."""
        for chain in list(self.chains):
            chain.close()
        with self._admin_lock:
            self._released = True
            if self._owns_admin and self._admin is not None:
                self._admin.close()
        if self._choose_admin is not None:
            self._choose_admin.close()
