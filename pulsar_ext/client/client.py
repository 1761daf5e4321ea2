"""The client: the factories of producers, consumers and readers, the admin API they may ask, and a clean end.

`Client` is a `pulsar.Client`; every official argument keeps its name, default and meaning. Mirrors Java's
`PulsarClientImpl`. Without a service URL the environment says where the broker is: `PULSAR_URL` and `PULSAR_TOKEN`. The
admin API is derived from the client's arguments and the environment.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import pulsar

from pulsar_ext._native.asking import AskingClient
from pulsar_ext._native.fork import refuse_after_fork
from pulsar_ext._native.handles import ClientDoor, consumers_of
from pulsar_ext._native.locks import OwnedLock
from pulsar_ext._native.signatures import named_arguments, shaped_like
from pulsar_ext._runtime.condition import refuse_interrupting
from pulsar_ext._runtime.context import ClientContext
from pulsar_ext._runtime.cpp_log import log_through
from pulsar_ext._runtime.ending import fail_together, finish_together
from pulsar_ext.admin import PulsarAdmin, derive_admin_url
from pulsar_ext.consumer import Consumer
from pulsar_ext.errors import AdminRequired, AdminUnavailable, InvalidUse
from pulsar_ext.intercept.chain import ConsumerChain, ReaderChain
from pulsar_ext.key_shared.reader import open_range_reader
from pulsar_ext.produce.router import HashingScheme
from pulsar_ext.reader import Reader
from pulsar_ext.redelivery.tracker import RedeliveryOptions
from pulsar_ext.schema.choice import with_schema
from pulsar_ext.topics_reader.opening import open_topics_reader, reads_several

from .authentication import AuthenticationToken, credentials_of, telling_why
from .closing import ClientClose, close_at_exit, stop_fetching
from .consumers import ActiveEvents, ConsumerSettings
from .opening import ClientOpening
from .reachability import telling_what_is_known
from .same_cluster import AdminChoice, checked_admin
from .tools import ClientTools

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pulsar_ext._runtime.ending import Ending
    from pulsar_ext.dedup.opening import Recall
    from pulsar_ext.intercept.interfaces import ConsumerInterceptor, ProducerInterceptor, ReaderInterceptor
    from pulsar_ext.key_shared.hash_ranges import RangesLike
    from pulsar_ext.key_shared.hashing import KeyFormsMode
    from pulsar_ext.producer import Producer
    from pulsar_ext.redelivery.schedule import Backoff
    from pulsar_ext.schema.typed import T, TypedSchema
    from pulsar_ext.table_view import TableView

    from .authentication import Credentials
    from .consumers import ConsumerEventListener


def located(arguments: dict[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """Complete the arguments of a client that was given no service URL.

    A client that was given one takes nothing from here: the environment's token does not go to another broker.

    Raises:
        InvalidUse: the environment does not say where the broker is either.
    """
    if arguments["service_url"] is not None:
        return arguments
    url, token = environment.get("PULSAR_URL"), environment.get("PULSAR_TOKEN")
    if not url:
        raise InvalidUse('A client needs a service URL, such as Client("pulsar://localhost:6650"), or PULSAR_URL.')
    added: dict[str, Any] = {"service_url": url}
    if token and arguments["authentication"] is None:
        added["authentication"] = AuthenticationToken(token)
    return {**arguments, **added}


_ADMIN_SECONDS = 5.0


def admin_at(url: str | Sequence[str], arguments: dict[str, Any]) -> PulsarAdmin:
    """Make the admin API at a URL, or at several of one cluster, with the credentials of a client's arguments.

    Raises:
        InvalidUse: it is no admin URL.
        AdminRequired: the credentials are not known.
    """
    trust = arguments["tls_trust_certs_file_path"]
    return _admin(url, arguments, credentials_of(arguments["authentication"], trust))


def derive_admin(
    arguments: dict[str, Any], same_cluster: Callable[[PulsarAdmin, str], PulsarAdmin] = lambda admin, _: admin
) -> PulsarAdmin:
    """Take the environment's admin URL, else that of the service URL.

    Args:
        arguments: the client's, by name.
        same_cluster: gives the environment's admin API, named second, with a check that it is the client's cluster's.

    Raises:
        InvalidUse: the environment's is not a URL.
        AdminRequired: the credentials are not known, or would go over plain http to a port that nobody named.
        AdminUnavailable: no URL can be derived.
    """
    if url := os.environ.get("PULSAR_ADMIN_URL"):
        try:
            return same_cluster(admin_at(url, arguments), "The environment's PULSAR_ADMIN_URL")
        except AdminRequired:
            raise
        except InvalidUse as error:
            raise InvalidUse(f"The environment's PULSAR_ADMIN_URL cannot be used. {error}") from None
    service_url = arguments["service_url"]
    if not isinstance(service_url, str):
        raise AdminUnavailable(
            "No admin API can be derived from a service URL that changes. Give Client(admin=…) or PULSAR_ADMIN_URL."
        )
    credentials = credentials_of(arguments["authentication"], arguments["tls_trust_certs_file_path"])
    return _admin(derive_admin_url(service_url, {}, has_secret=credentials.has_secret), arguments, credentials)


def _admin(url: str | Sequence[str], arguments: dict[str, Any], credentials: Credentials) -> PulsarAdmin:
    trust = arguments["tls_trust_certs_file_path"]
    certificate, key = credentials.certificate or (
        arguments["tls_certificate_file_path"],
        arguments["tls_private_key_file_path"],
    )
    return PulsarAdmin(
        url,
        token=credentials.token,
        basic=credentials.basic,
        tls_trust_certs_file_path=trust,
        tls_allow_insecure_connection=arguments["tls_allow_insecure_connection"],
        # Whoever names its own authority may have certificates without names; one that anybody can have a certificate
        # of proves nothing but the name.
        tls_validate_hostname=arguments["tls_validate_hostname"] or trust is None,
        tls_certificate_file_path=certificate,
        tls_private_key_file_path=key,
        timeout_seconds=_ADMIN_SECONDS,
        deadline_seconds=_ADMIN_SECONDS,
    )


class Client(ClientTools, ClientOpening, ClientDoor):
    """A `pulsar.Client` whose producers, consumers and readers are those of `pulsar_ext`.

    Args:
        service_url: as the official client; without it `PULSAR_URL` of the environment, with the token `PULSAR_TOKEN`,
            if it is set and no `authentication` is given.
        *args: the official arguments.
        admin: the admin API, which is asked what an id rebuilt from numbers stands for, where the chunks of a stored id
            are, where a cursor is, and what a Shared subscription delivers to nobody: a `PulsarAdmin`, a URL or a list
            of the URLs of one cluster, of which the next is asked when one is down; for a client that fails over to
            another cluster a list of one URL, which may name several hosts, or `PulsarAdmin` for each cluster, of which
            that of the cluster is asked that the client is connected to; or None to take `PULSAR_ADMIN_URL`
            from the environment, or else the service URL's hosts with the usual port (8080, or 8443 with TLS). URLs
            are asked with the client's own authentication and TLS settings, if the authentication is one of this
            library's; a token or a password goes to a guessed port with TLS only. What needs the admin API and may not
            ask it raises `AdminRequired` before anything is changed.
        **kwargs: the official arguments.
    """

    __slots__ = (
        "_authentication",
        "_closed",
        "_closing",
        "context",
    )

    @shaped_like(pulsar.Client.__init__)
    def __init__(
        self,
        service_url: Any = None,
        *args: Any,
        admin: PulsarAdmin | str | Sequence[str | PulsarAdmin] | None = None,
        **kwargs: Any,
    ) -> None:
        if not (admin is None or isinstance(admin, PulsarAdmin | str | list | tuple)):
            raise InvalidUse(f"admin is expected to be a PulsarAdmin, URLs or None, not {type(admin).__name__}")
        arguments = located(named_arguments(pulsar.Client.__init__, (service_url, *args), kwargs), os.environ)
        if isinstance(arguments["logger"], logging.Logger):
            arguments["logger"] = log_through(arguments["logger"])
        super().__init__(**arguments)
        changes = not isinstance(arguments["service_url"], str)
        given, choose = self._given_admins(admin, arguments, changes=changes)
        self.context = ClientContext(
            self,
            admin=given,
            choose_admin=choose,
            make_admin=lambda: derive_admin(arguments, partial(checked_admin, self)),
            owns_admin=not isinstance(admin, PulsarAdmin),
            open_reader=partial(super().create_reader, start_message_id_inclusive=True),
            schema_info=self.inner.get_schema_info,
            operation_timeout_seconds=arguments["operation_timeout_seconds"],
            service_url=self._connected_url if changes else None,
        )
        self._authentication = arguments["authentication"]
        self._closing, self._closed = OwnedLock(), False
        refuse_after_fork(self)
        close_at_exit(self)

    @shaped_like(pulsar.Client.create_producer)
    def create_producer(
        self,
        topic: str,
        *args: Any,
        schema: type[T] | TypedSchema[T] | None = None,
        deduplication: bool | Recall = False,
        interceptors: Sequence[ProducerInterceptor] | None = None,
        hashing_scheme: HashingScheme = HashingScheme.BoostHash,
        **kwargs: Any,
    ) -> Producer[T]:
        """Create a producer; the arguments are the official ones, and three more.

        With `batching_enabled` the producer cuts its batches itself, at the same limits, and one native callback gives
        the outcome of a whole batch. With `chunking_enabled`, `max_pending_messages` is a window of this library's own
        that counts 5 MiB as one chunk, because the official queue deadlocks there.

        Args:
            topic: as officially.
            *args: the official arguments.
            schema: as officially, or a class of values: a dataclass or a pydantic model, which is Avro.
            deduplication: whether every message shall be persisted exactly once, whatever dies: needs a `producer_name`
                and a topic that the broker deduplicates, which is proved here. Ids are the application's
                (`sequence_id`, going up, 0 included) or automatic. A message that the topic holds already gets
                `DuplicateMessage`. Sends wait for room in the queue. After `send_timeout_millis` without an answer
                the producer takes no more messages; created again, it knows what is persisted. A `Recall` instead of
                True finds out what the topic holds of a name that the broker has forgotten.
            interceptors: see each message before it is sent, and what becomes of it; in this order.
            hashing_scheme: how a message's key chooses its partition: with `HashingScheme.JavaStringHash` or
                `Murmur3_32Hash` as the Java client's producers with that scheme choose. Partitions are not started
                lazily then. A `message_router` decides instead.
            **kwargs: the official arguments.

        Raises:
            InvalidUse: `deduplication` without a name, or with what cannot be effectively once.
            DeduplicationDisabled: the broker does not deduplicate the topic.
            ProducerForgotten: the broker has forgotten the name, and the topic has not.
            AdminError: with `deduplication`, the admin API refused or did not answer. All of these: nothing was sent.
        """
        self.context.callbacks.refuse("create_producer")
        named = named_arguments(pulsar.Client.create_producer, (topic, *args), with_schema(schema, kwargs))
        options = {"deduplication": deduplication, "interceptors": interceptors, "hashing_scheme": hashing_scheme}
        return self._open_producer_(named, **options)

    @shaped_like(pulsar.Client.subscribe)
    def subscribe(
        self,
        topic: Any,
        subscription_name: str,
        *args: Any,
        schema: type[T] | TypedSchema[T] | None = None,
        ack_group_time_ms: int | None = None,
        max_ack_group_size: int | None = None,
        enable_retry: bool = False,
        retry_letter_topic: str | None = None,
        negative_ack_redelivery_backoff: Backoff | None = None,
        ack_timeout_redelivery_backoff: Backoff | None = None,
        interceptors: Sequence[ConsumerInterceptor] | None = None,
        priority_level: int = 0,
        subscription_properties: Mapping[str, str] | None = None,
        consumer_event_listener: ConsumerEventListener | None = None,
        letter_encryption_key: str | None = None,
        letter_crypto_key_reader: pulsar.CryptoKeyReader | None = None,
        **kwargs: Any,
    ) -> Consumer[T]:
        """Subscribe to a topic, a list of topics or a pattern; the arguments are the official ones, and twelve more.

        Args:
            topic: as officially.
            subscription_name: as officially.
            *args: the official arguments.
            schema: as officially, or a class of values, as in `create_producer()`.
            ack_group_time_ms: how long an acknowledgement may wait for others, in milliseconds, Java's
                `acknowledgmentGroupTime`; by default 100. With 0 each is sent at once, which costs some milliseconds
                as up to 100 does, because the C++ client's own group of 100 ms has to be flushed.
            max_ack_group_size: how many wait at most, Java's `maxAcknowledgmentGroupSize`; by default 1000. With either
                argument, a run of acknowledged messages on an Exclusive or Failover subscription is sent as one
                cumulative acknowledgement.
            enable_retry: whether `reconsume_later()` is wanted, Java's `enableRetry`: the consumer reads the retry
                topic as well, so it is one of several topics; the `dead_letter_policy`, by default 16 times, says when
                a message goes to the dead letter topic instead.
            retry_letter_topic: by default `<first topic>-<subscription>-RETRY`.
            negative_ack_redelivery_backoff: a `MultiplierRedeliveryBackoff`, or a function of how often a message was
                redelivered, that gives the milliseconds instead of `negative_ack_redelivery_delay_ms`, at least 100.
            ack_timeout_redelivery_backoff: the same, for what is added to `unacked_messages_timeout_ms`.
            interceptors: see each message before it is handed out, and acknowledgements; in this order.
            priority_level: consumers of a Shared subscription with a higher number get messages while those with lower
                ones have no room; on Failover those with the lowest are chosen among.
            subscription_properties: what the subscription carries on the broker, if this consumer makes it.
            consumer_event_listener: hears whether the consumer of a Failover subscription is the active one.
            letter_encryption_key: the name of the key that retry letters and dead letters are encrypted with; by
                default that of their message, if it was encrypted and the key reader has that public key.
            letter_crypto_key_reader: has the public key; by default the consumer's `crypto_key_reader` is asked for it.
            **kwargs: the official arguments.

        Raises:
            InvalidUse: one of these is not valid, or cannot be set with this build of the official client; nothing was
                opened.
        """
        self.context.callbacks.refuse("subscribe")
        arguments = topic, subscription_name, *args
        named = named_arguments(pulsar.Client.subscribe, arguments, with_schema(schema, kwargs))
        backoffs = negative_ack_redelivery_backoff, ack_timeout_redelivery_backoff
        encryption = letter_encryption_key, letter_crypto_key_reader
        redelivery = RedeliveryOptions(enable_retry, retry_letter_topic, *backoffs, *encryption)
        grouping = {"ack_group_time_ms": ack_group_time_ms, "max_ack_group_size": max_ack_group_size}
        chain = ConsumerChain.of(self.context, interceptors)
        events = None if consumer_event_listener is None else ActiveEvents(consumer_event_listener)
        settings = ConsumerSettings(
            named["pattern_auto_discovery_period"], priority_level, subscription_properties, events
        )
        return self._open_consumer_(named, **grouping, redelivery=redelivery, chain=chain, settings=settings)

    @shaped_like(pulsar.Client.create_reader)
    def create_reader(
        self,
        topic: Any,
        start_message_id: Any,
        *args: Any,
        schema: type[T] | TypedSchema[T] | None = None,
        key_hash_ranges: RangesLike | None = None,
        key_forms: KeyFormsMode = "auto",
        interceptors: Sequence[ReaderInterceptor] | None = None,
        pattern_auto_discovery_period: int = 60,
        **kwargs: Any,
    ) -> Reader[T]:
        """Create a reader of a topic, a list of topics or a pattern; the arguments are the official ones, and more.

        `start_message_id` may be any id of a chunked message; with `start_message_id_inclusive=True` that message is
        the first one read, whole.

        Args:
            topic: as officially; with `key_hash_ranges` it must exist. A list or a pattern gives a `TopicsReader`.
            start_message_id: as officially; for several topics the earliest, the latest, or a dict of ids by topic.
            *args: the official arguments.
            schema: as officially, or a class of values, as in `create_producer()`.
            key_hash_ranges: whose messages to read, such as `[KeyHashRange(0, 10000)]`; gives a `RangeReader`.
            key_forms: how to tell a key sent as bytes from base64 text, and an empty key from none; see `KeyForms`.
            interceptors: see each message before it is handed out; in this order.
            pattern_auto_discovery_period: after how many seconds topics of a pattern are looked for again.
            **kwargs: the official arguments.

        Raises:
            IncompleteChunkedMessage: the message cannot be read any more: chunks of it were trimmed.
            MessageIdNotFound: an id rebuilt from numbers is beyond the end of the topic.
            InvalidKeyHashRange, NoSuchTopic: as their names say; nothing was opened.
        """
        self.context.callbacks.refuse("create_reader")
        arguments = topic, start_message_id, *args
        named = named_arguments(pulsar.Client.create_reader, arguments, with_schema(schema, kwargs))
        chain = ReaderChain.of(self.context, interceptors)
        if reads_several(named["topic"]):
            period = pattern_auto_discovery_period
            return open_topics_reader(self.context, named, key_hash_ranges, key_forms, chain, period)
        if key_hash_ranges is not None:
            return open_range_reader(self.context, named, key_hash_ranges, key_forms, chain)
        return self._open_reader_(named, chain=chain)

    @shaped_like(pulsar.Client.create_table_view)
    def create_table_view(
        self, *args: Any, schema: type[T] | TypedSchema[T] | None = None, **kwargs: Any
    ) -> TableView[T]:
        """Create a table view; the arguments are the official ones.

        The subscription on the broker has a name of its own, which `subscription_name` is the beginning of. The view
        has read up to the last ids of the moment it began, as in Java; without an admin API, until there is no more.
        """
        self.context.callbacks.refuse("create_table_view")
        named = named_arguments(pulsar.Client.create_table_view, args, with_schema(schema, kwargs))
        return self._open_table_view_(named)

    def get_topic_partitions(self, topic: str) -> list[str]:
        """Give the names of a topic's partitions; of a topic without partitions its own."""
        self.context.callbacks.refuse("get_topic_partitions")
        known = telling_what_is_known(self.context, self._connected_url, {"topic": topic})
        with known, telling_why(self._authentication):
            return AskingClient(self.inner, self.context.senders.ask).partitions_of(topic)

    def close(self) -> None:
        """Wait until what was sent is persisted, send pending acknowledgements, close all; again does nothing."""
        self.context.callbacks.refuse("close")
        with self._closing:  # a second caller, or the end of the program, waits for the first
            if self._closed:
                return
            for sender in self.context.senders:  # before any is closed
                sender.refuse_interrupting()
            for one in self._received_by_():
                refuse_interrupting("A close", *one._locks_)
            deadline = time.monotonic() + self.context.operation_timeout_seconds
            try:
                with contextlib.suppress(pulsar.PulsarException):  # its messages' errors, which know
                    finish_together(self.context.senders.end(), deadline)
                self.context.close_schedulers()
                stop_fetching(self._received_by_())
                # A producer's, that timed out while it closed; a consumer's, that the broker closed for a seek, or that
                # loses its connection just now.
                with contextlib.suppress(pulsar.AlreadyClosed, pulsar.BrokerMetadataError, pulsar.NotConnected):
                    self._close_inner(self.inner.close)  # no callback may be on its way when the program ends
            except Exception:  # after anything else, such as a Ctrl-C, closing again goes on with it
                self._end()
                raise
            self._end()

    def shutdown(self) -> None:
        """Release everything at once, without waiting for the broker: what is pending is lost, as officially.

        Every send that waits raises `AlreadyClosed`, and every callback that has not been called is called with it.
        """
        close = self.inner.close_async  # refused in a child process, before anything changes
        self._closed = True
        senders = self.context.senders.end()
        for sender in senders:
            sender.forget()
        stop_fetching(self._received_by_())
        fail_together(senders, lambda done: self._close_inner(partial(close, done)))
        self._release()

    def _after_fork_(self, refusal: Any) -> None:
        """Refuse every use in this child process; a lock may have been held at the fork, for good."""
        super()._after_fork_(refusal)
        self.context._after_fork_(refusal)
        self._closing = OwnedLock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_closed(self) -> bool:
        """Whether `close()` or `shutdown()` was called."""
        return self._closed

    def _handles_(self) -> list[Ending | Consumer | Reader]:
        """Give the senders of producers, the consumers and the readers that are open."""
        return [*self.context.senders, *self._received_by_()]

    def _received_by_(self) -> list[Consumer | Reader]:
        """Give the consumers and readers that are open; the official ones among them are this library's own means."""
        return [one for one in consumers_of(self) if isinstance(one, Consumer | Reader)]

    def _given_admins(
        self, admin: Any, arguments: dict[str, Any], *, changes: bool
    ) -> tuple[PulsarAdmin | None, AdminChoice | None]:
        """Make what the application gave: one admin API, or a choice for a client that changes its cluster."""
        several = isinstance(admin, list | tuple)
        if admin is None or not (changes or (several and any(isinstance(one, PulsarAdmin) for one in admin))):
            return (admin if admin is None or isinstance(admin, PulsarAdmin) else admin_at(admin, arguments)), None
        if not changes:
            raise InvalidUse("A client of one service URL takes one PulsarAdmin, or URLs of one cluster.")
        each = [*admin] if several else [admin]
        made = [one if isinstance(one, PulsarAdmin) else admin_at(one, arguments) for one in each]
        return None, AdminChoice(self, made, [one for one in made if one not in each])

    def _close_inner(self, close: Callable[[], object]) -> None:
        seconds = self.context.operation_timeout_seconds
        ClientClose(self.inner, self.context.senders, self._received_by_(), seconds).close(close)

    def _end(self) -> None:
        self._closed = True
        self._release()

    def _release(self) -> None:
        for one in self._received_by_():
            one._release_()
        self.context.release()
