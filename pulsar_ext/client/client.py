"""The client: factories of producers, consumers and readers, the admin API, and an orderly close.

`Client` is a `pulsar.Client`; every official argument keeps its name, default and meaning. Mirrors Java's
`PulsarClientImpl`. Without a service URL, the environment variables `PULSAR_URL` and `PULSAR_TOKEN` are used. The admin
API is derived from the client's arguments and the environment. A C++ client is closed after its last answer: requests
that are unanswered at a close leak.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import re
import sys
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import partial
from multiprocessing.util import Finalize
from operator import itemgetter
from typing import Any, Self

import pulsar

from pulsar_ext._native import threads
from pulsar_ext._native.answer import ANSWER_SECONDS, answered_within
from pulsar_ext._native.fork import Refusing, refuse_after_fork
from pulsar_ext._native.handles import ClientHandle, consumers_of
from pulsar_ext._native.interruptible import InterruptibleClient
from pulsar_ext._native.locks import Lock, OwnedLock
from pulsar_ext._native.messages import InnerClient
from pulsar_ext._native.seek_gate import SeekGate
from pulsar_ext._native.signatures import Arguments, binding, documented_by, official_arguments
from pulsar_ext._runtime.condition import raise_if_interrupting
from pulsar_ext._runtime.context import ClientContext
from pulsar_ext._runtime.cpp_log import log_through
from pulsar_ext._runtime.ending import OpenSender, OpenSenders, close_together, fail_together
from pulsar_ext._runtime.statistics import ClientStats
from pulsar_ext.ack.by_id import AckResult, acknowledge_by_id
from pulsar_ext.admin import PulsarAdmin, derive_admin_url
from pulsar_ext.consumer import Consumer
from pulsar_ext.dedup.opening import Recall
from pulsar_ext.doctor.examination import examine
from pulsar_ext.doctor.findings import Diagnosis, DiagnosisLimits
from pulsar_ext.errors import AdminRequired, AdminUnavailable, InvalidUse
from pulsar_ext.ids.message_id import AnyMessageId, MessageId
from pulsar_ext.intercept import ConsumerChain, ConsumerInterceptor, ProducerInterceptor, ReaderChain, ReaderInterceptor
from pulsar_ext.key_shared.builders import ConsumerBuilder, ReaderBuilder
from pulsar_ext.key_shared.hash_ranges import KeyHashRanges, RangesLike
from pulsar_ext.key_shared.hashing import KeyFormsMode
from pulsar_ext.key_shared.reader_group import Filtering, RangeReaderGroup, open_group, open_range_reader
from pulsar_ext.look.survey import Survey, survey
from pulsar_ext.message import Message
from pulsar_ext.process import Action
from pulsar_ext.produce.router import HashingScheme
from pulsar_ext.producer import Producer
from pulsar_ext.reader import Reader
from pulsar_ext.reading import Places, Reading, open_reading
from pulsar_ext.receive.undecryptable import tolerates_decryption_failure, unique_name
from pulsar_ext.redelivery.schedule import Backoff
from pulsar_ext.redelivery.tracker import RedeliveryOptions
from pulsar_ext.request import Replier, Replying, Requester, in_same_namespace, replier_arguments
from pulsar_ext.schema.choice import VersionLookup, schema_of
from pulsar_ext.schema.typed import T, TypedSchema
from pulsar_ext.skip.boundaries import Unit
from pulsar_ext.skip.skipper import Skipper, SkipResult, message_id_after, message_id_by_index
from pulsar_ext.table_view import TableView
from pulsar_ext.topics_reader import open_topics_reader, reads_several

from .authentication import AuthenticationToken, authentication_error_details, credentials_of
from .consumers import ConsumerEventListener, consumer_settings, open_consumer, open_reader, open_table_view
from .producers import make_producer
from .reachability import check_readable, opening_error_details, schema_error_details
from .same_cluster import AdminChoice, ClusterCheck


def with_service_url(arguments: Arguments, environment: Mapping[str, str]) -> Arguments:
    """Return the arguments, without a service URL completed from the environment; with one, its token stays unused."""
    if arguments["service_url"] is not None:
        return arguments
    url, token = environment.get("PULSAR_URL"), environment.get("PULSAR_TOKEN")
    if not url:
        raise InvalidUse('A client needs a service URL: pass Client("pulsar://localhost:6650") or set PULSAR_URL.')
    added: Arguments = {"service_url": url}
    if token and arguments["authentication"] is None:
        added["authentication"] = AuthenticationToken(token)
    return {**arguments, **added}


_ADMIN_SECONDS = 5.0
_redelivery_options = itemgetter(*(one.name for one in fields(RedeliveryOptions)))


def admin_at(url: str | Sequence[str], arguments: Arguments) -> PulsarAdmin:
    """Return the admin API at a URL, or several of one cluster, with the credentials of a client's arguments."""
    trust = arguments["tls_trust_certs_file_path"]
    credentials = credentials_of(arguments["authentication"], trust)
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
        # Certificates of a private authority may lack names; of a public authority, only the name proves the identity.
        tls_validate_hostname=arguments["tls_validate_hostname"] or trust is None,
        tls_certificate_file_path=certificate,
        tls_private_key_file_path=key,
        timeout_seconds=_ADMIN_SECONDS,
        deadline_seconds=_ADMIN_SECONDS,
    )


def derive_admin(
    arguments: Arguments, same_cluster: Callable[[PulsarAdmin, str], PulsarAdmin] = lambda admin, _: admin
) -> PulsarAdmin:
    """Return the admin API of the environment's URL, with the check `same_cluster`, or else of the service URL."""
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
            "No admin API can be derived from a changing service URL. Pass Client(admin=…) or set PULSAR_ADMIN_URL."
        )
    credentials = credentials_of(arguments["authentication"], arguments["tls_trust_certs_file_path"])
    return admin_at(derive_admin_url(service_url, {}, has_secret=credentials.has_secret), arguments)


class Client(ClientHandle):
    """A `pulsar.Client` that opens the producers, consumers and readers of `pulsar_ext`.

    Args:
        service_url: as officially; by default the environment's `PULSAR_URL`, with the token `PULSAR_TOKEN` if it is
            set and no `authentication` is given.
        admin: the admin API, used to resolve ids rebuilt from numbers and chunks of stored ids, to read cursors, and
            to find messages that a Shared subscription does not deliver. A `PulsarAdmin`, a URL, or a list of URLs of
            one cluster, of which the next is used if one is down. For a client that fails over to another cluster, a
            list with one URL (of one or several hosts) or `PulsarAdmin` per cluster, of which the current cluster's is
            used. None means `PULSAR_ADMIN_URL` from the environment, or else the service URL's hosts with the default
            port (8080, or 8443 with TLS). URLs are used with the client's TLS settings, and with its authentication if
            that is one of this library's; a token or a password is sent to a derived port with TLS only. Operations
            that need the admin API and cannot use it raise `AdminRequired` before they change anything.
    """

    __slots__ = (
        "_authentication",
        "_closed",
        "_closing",
        "context",
    )

    @documented_by(pulsar.Client.__init__)
    def __init__(
        self,
        service_url: str | pulsar.AutoClusterFailover | pulsar.ServiceInfoProvider | None = None,
        authentication: pulsar.Authentication | None = None,
        operation_timeout_seconds: int = 30,
        io_threads: int = 1,
        message_listener_threads: int = 1,
        concurrent_lookup_requests: int = 50_000,
        log_conf_file_path: str | None = None,
        stats_interval_in_seconds: int = 600,
        use_tls: bool = False,
        tls_trust_certs_file_path: str | None = None,
        tls_allow_insecure_connection: bool = False,
        tls_validate_hostname: bool = False,
        logger: logging.Logger | pulsar.ConsoleLogger | pulsar.FileLogger | None = None,
        connection_timeout_ms: int = 10_000,
        listener_name: str | None = None,
        tls_private_key_file_path: str | None = None,
        tls_certificate_file_path: str | None = None,
        *,
        admin: PulsarAdmin | str | Sequence[str | PulsarAdmin] | None = None,
    ) -> None:
        if not (admin is None or isinstance(admin, PulsarAdmin | str | list | tuple)):
            raise InvalidUse(f"admin must be a PulsarAdmin, URLs or None, got {type(admin).__name__}")
        arguments = with_service_url(official_arguments(pulsar.Client.__init__, locals()), os.environ)
        if isinstance(arguments["logger"], logging.Logger):
            arguments["logger"] = log_through(arguments["logger"])
        super().__init__(**arguments)
        changes = not isinstance(arguments["service_url"], str)
        given, choose = self._given_admins(admin, arguments, changes=changes)
        self.context = ClientContext(
            self,
            admin=given,
            choose_admin=choose,
            make_admin=lambda: derive_admin(
                arguments, lambda made, origin: made.check_requests(ClusterCheck(self, made, origin))
            ),
            owns_admin=not isinstance(admin, PulsarAdmin),
            open_reader=partial(super().create_reader, start_message_id_inclusive=True),
            schema_info=self.inner.get_schema_info,
            operation_timeout_seconds=arguments["operation_timeout_seconds"],
            service_url=self._connected_url if changes else None,
        )
        self._authentication = arguments["authentication"]
        self._closing, self._closed = OwnedLock(), False
        refuse_after_fork(self)
        _close_at_exit(self)

    @documented_by(pulsar.Client.create_producer)
    def create_producer(  # noqa: D417  # the official docs are appended
        self,
        topic: str,
        producer_name: str | None = None,
        schema: type[T] | TypedSchema[T] | None = None,
        initial_sequence_id: int | None = None,
        send_timeout_millis: int = 30_000,
        compression_type: binding.CompressionType = binding.CompressionType.NONE,
        max_pending_messages: int = 1_000,
        max_pending_messages_across_partitions: int = 50_000,
        block_if_queue_full: bool = False,
        batching_enabled: bool = False,
        batching_max_messages: int = 1_000,
        batching_max_allowed_size_in_bytes: int = 131_072,
        batching_max_publish_delay_ms: int = 10,
        chunking_enabled: bool = False,
        message_routing_mode: binding.PartitionsRoutingMode = binding.PartitionsRoutingMode.RoundRobinDistribution,
        lazy_start_partitioned_producers: bool = False,
        properties: dict[str, str] | None = None,
        batching_type: binding.BatchingType = binding.BatchingType.Default,
        encryption_key: str | None = None,
        crypto_key_reader: pulsar.CryptoKeyReader | None = None,
        access_mode: binding.ProducerAccessMode = binding.ProducerAccessMode.Shared,
        message_router: Callable[[Message[T], int], int] | None = None,
        *,
        deduplication: bool | Recall = False,
        interceptors: Sequence[ProducerInterceptor] | None = None,
        hashing_scheme: HashingScheme = HashingScheme.BoostHash,
    ) -> Producer[T]:
        """Create a producer with the official arguments and three more.

        With `batching_enabled`, this library cuts the batches, at the official limits, and one native callback reports
        the result of a whole batch. With `chunking_enabled`, `max_pending_messages` is this library's own window,
        which counts 5 MiB as one chunk, because the official queue can deadlock.

        Args:
            schema: as officially, or a class of values: a dataclass or a pydantic model, encoded as Avro.
            deduplication: persist every message exactly once, whatever fails. It needs a `producer_name` and a topic
                with deduplication on the broker, which is checked here. Sequence ids are the application's
                (`sequence_id`, increasing, 0 included) or automatic. A message that the topic already has gets
                `DuplicateMessage`. Sends wait for room in the queue. After `send_timeout_millis` without a response
                the producer accepts no more messages; create it again to learn what is persisted. With a `Recall`
                instead of True, the topic is searched for messages of a name that the broker no longer knows.
            interceptors: called in this order with each message before it is sent, and with its result.
            hashing_scheme: the hash that chooses the partition of a message with a key; `HashingScheme.JavaStringHash`
                and `Murmur3_32Hash` choose like the Java client with that scheme. Partitions are not started lazily
                then. A `message_router` has priority.

        Raises:
            InvalidUse: `deduplication` without a name, or with arguments that it does not support.
            DeduplicationDisabled: the broker does not deduplicate the topic.
            ProducerForgotten: the broker no longer knows the name, but the topic has its messages.
            AdminError: with `deduplication`, the admin API failed. Nothing was sent in any of these cases.
        """
        self.context.callbacks.raise_inside("create_producer")
        named = self._with_schema(official_arguments(pulsar.Client.create_producer, locals()))
        try:
            if isinstance(named["schema"], TypedSchema):
                named["schema"].adapt_to_topic(partial(self._interruptible().schema_of, topic))
                named["schema"].register(topic)
            return make_producer(
                self,
                self.context,
                named,
                deduplication=deduplication,
                interceptors=interceptors,
                hashing_scheme=hashing_scheme,
            )
        except Exception:
            with self._error_details(named, topic):
                raise

    @documented_by(pulsar.Client.subscribe)
    def subscribe(  # noqa: D417  # the official docs are appended
        self,
        topic: str | list[str] | re.Pattern[str],
        subscription_name: str,
        consumer_type: binding.ConsumerType = binding.ConsumerType.Exclusive,
        schema: type[T] | TypedSchema[T] | None = None,
        message_listener: Callable[[Consumer[T], Message[T]], object] | None = None,
        receiver_queue_size: int = 1_000,
        max_total_receiver_queue_size_across_partitions: int = 50_000,
        consumer_name: str | None = None,
        unacked_messages_timeout_ms: int | None = None,
        broker_consumer_stats_cache_time_ms: int = 30_000,
        negative_ack_redelivery_delay_ms: int = 60_000,
        is_read_compacted: bool = False,
        properties: dict[str, str] | None = None,
        pattern_auto_discovery_period: int = 60,
        initial_position: binding.InitialPosition = binding.InitialPosition.Latest,
        crypto_key_reader: pulsar.CryptoKeyReader | None = None,
        replicate_subscription_state_enabled: bool = False,
        max_pending_chunked_message: int = 10,
        auto_ack_oldest_chunked_message_on_queue_full: bool = False,
        start_message_id_inclusive: bool = False,
        batch_receive_policy: pulsar.ConsumerBatchReceivePolicy | None = None,
        key_shared_policy: pulsar.ConsumerKeySharedPolicy | None = None,
        batch_index_ack_enabled: bool = False,
        regex_subscription_mode: binding.RegexSubscriptionMode = binding.RegexSubscriptionMode.PersistentOnly,
        dead_letter_policy: pulsar.ConsumerDeadLetterPolicy | None = None,
        crypto_failure_action: binding.ConsumerCryptoFailureAction = binding.ConsumerCryptoFailureAction.FAIL,
        *,
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
    ) -> Consumer[T]:
        """Subscribe to a topic, a list of topics or a pattern, with the official arguments and twelve more.

        Args:
            schema: as officially, or a class of values, as in `create_producer()`.
            ack_group_time_ms: the time in milliseconds for which acknowledgements are grouped, Java's
                `acknowledgmentGroupTime`; by default 100. With 0 each one is sent at once, which takes some
                milliseconds (as values up to 100 do), because the C++ client's own group has to be flushed.
            max_ack_group_size: the maximum number of pending acknowledgements, Java's `maxAcknowledgmentGroupSize`; by
                default 1000. With either argument, consecutive acknowledgements on an Exclusive or Failover
                subscription are sent as one cumulative acknowledgement.
            enable_retry: enable `reconsume_later()`, Java's `enableRetry`: the consumer also reads the retry topic, and
                so has several topics. The `dead_letter_policy` (16 redeliveries by default) says when a message goes to
                the dead letter topic instead.
            retry_letter_topic: by default `<first topic>-<subscription>-RETRY`.
            negative_ack_redelivery_backoff: the delay of redelivery after a negative acknowledgement, instead of
                `negative_ack_redelivery_delay_ms`: a `MultiplierRedeliveryBackoff`, or a function of the redelivery
                count that returns milliseconds, at least 100.
            ack_timeout_redelivery_backoff: the delay to add to `unacked_messages_timeout_ms`: a
                `MultiplierRedeliveryBackoff` or such a function.
            interceptors: called in this order with each message before it is delivered, and with acknowledgements.
            priority_level: on a Shared subscription, consumers with a higher number get messages while those with a
                lower one have no permits; on Failover the active consumer is one with the lowest number.
            subscription_properties: properties of the subscription on the broker, if this consumer creates it.
            consumer_event_listener: notified when the consumer of a Failover subscription becomes active or inactive.
            letter_encryption_key: the name of the key that encrypts retry letters and dead letters; by default their
                message's, if it was encrypted and the key reader has that public key.
            letter_crypto_key_reader: the reader of that public key; by default the consumer's `crypto_key_reader`.

        Raises:
            InvalidUse: an argument is invalid, or not supported by this build of the official client; nothing was
                opened.
        """
        given = locals()
        self.context.callbacks.raise_inside("subscribe")
        return self._subscribe_(given, chain=ConsumerChain.of(self.context, interceptors))

    @documented_by(pulsar.Client.create_reader)
    def create_reader(  # noqa: D417  # the official docs are appended
        self,
        topic: str | Sequence[str] | re.Pattern[str],
        start_message_id: AnyMessageId | Mapping[str, AnyMessageId],
        schema: type[T] | TypedSchema[T] | None = None,
        reader_listener: Callable[[Reader[T], Message[T]], object] | None = None,
        receiver_queue_size: int = 1_000,
        reader_name: str | None = None,
        subscription_role_prefix: str | None = None,
        is_read_compacted: bool = False,
        crypto_key_reader: pulsar.CryptoKeyReader | None = None,
        start_message_id_inclusive: bool = False,
        crypto_failure_action: binding.ConsumerCryptoFailureAction = binding.ConsumerCryptoFailureAction.FAIL,
        *,
        key_hash_ranges: RangesLike | None = None,
        key_forms: KeyFormsMode = "auto",
        interceptors: Sequence[ReaderInterceptor] | None = None,
        pattern_auto_discovery_period: int = 60,
    ) -> Reader[T]:
        """Create a reader of a topic, a list of topics or a pattern, with the official arguments and more.

        `start_message_id` may be any id of a chunked message; with `start_message_id_inclusive=True` that whole
        message is the first one read.

        Args:
            topic: as officially; with `key_hash_ranges` it must exist. A list or a pattern returns a `TopicsReader`.
            start_message_id: as officially; for several topics the earliest, the latest, or a dict of ids by topic.
            schema: as officially, or a class of values, as in `create_producer()`.
            key_hash_ranges: the key ranges to read, such as `[KeyHashRange(0, 10000)]`; returns a `RangeReader`.
            key_forms: distinguishes keys sent as bytes from base64 text, and empty keys from missing ones; see
                `KeyForms`.
            interceptors: called in this order with each message before it is delivered.
            pattern_auto_discovery_period: the interval in seconds at which a pattern's topics are looked up.

        Raises:
            IncompleteChunkedMessage: chunks of the start message were trimmed.
            MessageIdNotFound: an id rebuilt from numbers is beyond the end of the topic.
            InvalidKeyHashRange: a key range is invalid; nothing was opened.
            NoSuchTopic: the topic does not exist; nothing was opened.
        """
        self.context.callbacks.raise_inside("create_reader")
        named = official_arguments(pulsar.Client.create_reader, locals())
        chain = ReaderChain.of(self.context, interceptors)
        if reads_several(topic):
            return open_topics_reader(
                self.context, named, key_hash_ranges, key_forms, chain, pattern_auto_discovery_period
            )
        if key_hash_ranges is not None:
            return open_range_reader(self.context, named, key_hash_ranges, key_forms, chain)
        return self._open_reader_(named, chain=chain)

    @documented_by(pulsar.Client.create_table_view)
    def create_table_view(
        self, topic: str, subscription_name: str | None = None, schema: type[T] | TypedSchema[T] | None = None
    ) -> TableView[T]:
        """Create a table view with the official arguments.

        The subscription on the broker has a unique name that begins with `subscription_name`. The view is complete when
        it has read up to the last ids at its start, as in Java; without an admin API, when no message is left.
        """
        self.context.callbacks.raise_inside("create_table_view")
        named = official_arguments(pulsar.Client.create_table_view, locals())
        view: TableView[T] = self._open(open_table_view, pulsar.Client.create_reader, named, {})
        return view

    def new_reader(self, schema: type | TypedSchema | None = None) -> ReaderBuilder:
        """Return a builder, Java's `newReader()`: `client.new_reader().topic(t).start_message_id(id).create()`."""
        return ReaderBuilder(self.context, schema)

    def read(
        self,
        topic: str | Sequence[str] | re.Pattern[str],
        start: Places = None,
        end: Places = None,
        *,
        last: int | None = None,
        start_inclusive: bool = True,
        end_inclusive: bool = True,
        by_publish_time: bool = False,
        keys: Collection[str] | None = None,
        key_hash_ranges: RangesLike | None = None,
        properties: Mapping[str, str] | None = None,
        schema: type[T] | TypedSchema[T] | None = None,
        is_read_compacted: bool = False,
        crypto_key_reader: pulsar.CryptoKeyReader | None = None,
    ) -> Reading[T]:
        """Iterate over exactly the messages from one place to another, without a subscription.

        for message in client.read("orders", last=10): …

        The reading ends with the messages that are stored now, whatever is written in the meantime. A chunked message
        is at the place of its last chunk. Times are those at which entries were stored as the broker finds them, by
        bisection: if publish times descend, the reading may begin or end at any of the entries around a time.

        Args:
            topic: a topic, partitioned or not, several topics, or a pattern of them.
            start: a message id of any form, a publish time in milliseconds or as a datetime, or a dict from topics to
                these; a topic that is not in the dict is read from its beginning. By default the beginning.
            end: as `start`; by default, and at most, the end of each topic now.
            last: read only this number of messages before the end of each topic or partition, instead of a `start`.
            start_inclusive: whether a message at the start is read.
            end_inclusive: whether a message at the end is read.
            by_publish_time: merge the topics or partitions by publish time, instead of one after the other.
            keys: read only messages with these keys.
            key_hash_ranges: read only messages of these key ranges, such as `[KeyHashRange(0, 10000)]`.
            properties: read only messages that have all of these properties.
            schema: as in `create_reader()`.
            is_read_compacted: whether to read the compacted view.
            crypto_key_reader: as in `create_reader()`.

        Raises:
            InvalidUse: an argument is invalid; nothing was opened.
            IncompleteChunkedMessage: chunks of the message at the start or the end were trimmed.
            AdminNotFound: a topic does not exist.
            AdminNotAllowed: a topic is not persistent.
            AdminError: the admin API failed.
        """
        self.context.callbacks.raise_inside("read")

        def open_reader(queue_size: int, name: str, place: AnyMessageId) -> Reader[T]:
            return self.create_reader(
                name,
                place,
                schema,
                receiver_queue_size=queue_size,
                is_read_compacted=is_read_compacted,
                crypto_key_reader=crypto_key_reader,
                start_message_id_inclusive=True,
            )

        return open_reading(
            self.context,
            topic,
            start,
            end,
            last=last,
            inclusive=(start_inclusive, end_inclusive),
            by_publish_time=by_publish_time,
            keys=keys,
            key_hash_ranges=key_hash_ranges,
            properties=properties,
            open_reader=open_reader,
        )

    def stats(self) -> ClientStats:
        """Return statistics of all open producers and consumers, from the admin API.

        Raises:
            AdminError: the admin API failed.
            pulsar.AlreadyClosed: the client is closed.
        """
        self.context.callbacks.raise_inside("stats")
        self.context.senders.raise_if_ended()
        received_by = self._open_receivers_()
        return ClientStats(
            consumers=tuple(one.stats() for one in received_by if isinstance(one, Consumer)),
            producers=tuple(one.stats() for one in list(self.context.producers) if not one.sender.closed),
            readers=sum(isinstance(one, Reader) for one in received_by),
        )

    def create_reader_group(
        self,
        topic: str,
        start_message_id: AnyMessageId,
        ranges: int | Sequence[RangesLike | KeyHashRanges],
        *,
        start_message_id_inclusive: bool = False,
        filtering: Filtering = "auto",
        key_forms: KeyFormsMode = "auto",
        receiver_queue_size: int = 1000,
    ) -> RangeReaderGroup:
        """Open readers that share a topic by key ranges, and read it only once together if its batches allow that.

        Args:
            topic: a topic, partitioned or not, that exists.
            start_message_id: the start; on a partitioned topic `MessageId.earliest` or `latest`.
            ranges: the number of readers, or the ranges of each, which together cover every slot once.
            start_message_id_inclusive: read the message of the start id too.
            filtering: "broker" uses one sticky Key_Shared subscription, which is deleted at `close()`; "client" makes
                each reader read all messages and keep its part; "auto" decides by the topic's batches, and reports the
                decision in `group.filtering` and `group.reason`.
            key_forms: distinguishes keys sent as bytes from base64 text, and empty keys from missing ones; see
                `KeyForms`.
            receiver_queue_size: the queue size of each reader.

        Raises:
            InvalidKeyHashRange, NoSuchTopic, InvalidUse: an argument is invalid, or the topic is missing; nothing was
                opened.
        """
        return open_group(
            self.context,
            topic,
            start_message_id,
            ranges,
            inclusive=start_message_id_inclusive,
            filtering=filtering,
            key_forms=key_forms,
            receiver_queue_size=receiver_queue_size,
        )

    def new_consumer(self, schema: type | TypedSchema | None = None) -> ConsumerBuilder:
        """Return a consumer builder, as Java's `newConsumer()`: `client.new_consumer().topic(t)….subscribe()`."""
        return ConsumerBuilder(self.context, schema)

    def requester(
        self,
        /,
        topic: str,
        *,
        reply_topic: str | None = None,
        subscription_name: str | None = None,
        timeout_ms: int = 30_000,
        schema: type | TypedSchema | None = None,
        reply_schema: type | TypedSchema | None = None,
        **producer_options: object,
    ) -> Requester:
        """Open a requester, which sends requests to a topic and returns their replies; see `docs/request.md`.

        Args:
            topic: the topic of requests.
            reply_topic: the topic of replies; by default a new one, `<topic>-replies-<random>`. Requesters that share
                one get all their replies.
            subscription_name: the subscription of replies; by default a random one, which a killed requester does
                not delete.
            timeout_ms: the default timeout of a request in milliseconds.
            schema: the schema of requests; bytes by default.
            reply_schema: the schema of replies; bytes by default.
            **producer_options: arguments of `create_producer()`; without batching, large requests are chunked.

        Raises:
            InvalidUse: an argument is invalid; nothing was opened.
        """
        self.context.callbacks.raise_inside("requester")
        names = reply_topic, subscription_name
        return Requester(self.context, topic, *names, timeout_ms, schema, reply_schema, producer_options).open()

    def replier(
        self,
        topic: str,
        handler: Callable[[Message], object],
        *,
        subscription_name: str = "repliers",
        on_error: Action | Callable[[Message, Exception], Action] | None = None,
        may_reply_to: Callable[[str, str], bool] = in_same_namespace,
        schema: type | TypedSchema | None = None,
        reply_schema: type | TypedSchema | None = None,
        **consumer_options: object,
    ) -> Replier:
        """Open a replier, whose handler answers the requests of a topic after `run()`; see `docs/request.md`.

        Args:
            topic: the topic of requests.
            handler: a function of a request that returns the content of the reply; an iterator yields several replies.
            subscription_name: the subscription of all repliers that share requests, and their name in replies.
            on_error: the action for a request whose handler raised, as in `Consumer.process()`. By default the
                requester gets the error, as it always does for a `RequestFailed`.
            may_reply_to: decides if a request on the first topic may have its replies on the second; by default if both
                are in one namespace. Other requests are skipped and logged.
            schema: the schema of requests; bytes by default.
            reply_schema: the schema of replies; bytes by default.
            **consumer_options: arguments of `subscribe()`; by default for a Shared subscription.

        Raises:
            InvalidUse: an argument is invalid; nothing was opened.
        """
        self.context.callbacks.raise_inside("replier")
        has_letters = bool(consumer_options.get("enable_retry"))
        replying = Replying(handler, subscription_name, on_error, may_reply_to, has_letters)
        arguments = replier_arguments(topic, subscription_name, schema, reply_schema, consumer_options)
        return Replier(self.context, replying, *arguments)

    def resolve_message_id(self, topic: str, message_id: AnyMessageId) -> MessageId:
        """Return the `ChunkMessageId` of the message that has a chunk; an equal id if it is not chunked.

        Args:
            topic: the topic, or the partitioned topic if the id has its partition.
            message_id: the id of any chunk of the message.

        Raises:
            MessageIdNotFound: the entry does not exist; `IncompleteChunkedMessage` if chunks of the message are lost.
            MessageIdUnresolved: the message's chunks are more than 10,000 entries apart.
            AdminError: the admin API failed.
        """
        return self.context.resolver.resolve(topic, message_id)

    def message_id_after(self, topic: str, message_id: AnyMessageId, count: int) -> MessageId | None:
        """Return the id of the message `count` messages after another one; None past the end of the topic.

        Messages are counted in the order of a reader: each one of a batch, and a chunked one once, at its last chunk.

        Args:
            topic: the topic, or the partitioned topic if the id has its partition.
            message_id: any id of the first message, or `MessageId.earliest`, the position before all messages.
            count: the number of messages, 0 or more.

        Raises:
            InvalidUse: the count is invalid, or the id is `MessageId.latest`.
            InvalidMessageId: the id is that of a batch without a batch index.
            MessageIdNotFound: the topic does not have the message.
            AdminNotAllowed: the topic is partitioned or non-persistent.
            AdminError: the admin API failed.
        """
        start = self.context.resolver.message_of(topic, message_id)
        return message_id_after(self.context, topic, start, count)

    def message_id_by_index(self, topic: str, index: int) -> MessageId:
        """Return the id of the message with an index, to seek or read there; see `Message.index()`.

        The index of any chunk is that of its message.

        Args:
            topic: a topic that is not partitioned, or one partition.
            index: the index, 0 or more.

        Raises:
            InvalidUse: the index is invalid.
            MessageIdNotFound: the message was trimmed; `IncompleteChunkedMessage` if chunks of it are missing.
            AdminPrecondition: the broker counts no messages.
            AdminNotFound: the topic does not exist, or the index is past its end.
            AdminNotAllowed: the topic is partitioned or non-persistent.
            AdminError: the admin API failed.
        """
        return message_id_by_index(self.context, topic, index)

    def skip_messages(
        self,
        topic: str,
        subscription: str,
        count: int,
        *,
        unit: Unit = "message",
        dry_run: bool = False,
        progress: bool = False,
    ) -> SkipResult:
        """Skip exactly `count` unacknowledged messages of a subscription, each of them completely.

        Args:
            topic: a topic that is not partitioned, or one partition.
            subscription: an existing subscription, with or without consumers, which stay connected.
            count: the number of messages; more than the backlog skips all.
            unit: `message`, or `entry` as the broker's own skip counts.
            dry_run: only compute the new cursor position.
            progress: show a progress bar on standard error while the topic is read, if `rich` is installed.

        Raises:
            InvalidUse: the count or the unit is invalid.
            SkipInsideMessage: the position is inside a message; the error has the two nearest counts.
            CursorMoved: messages were acknowledged between the plan and its execution.
            SkipUnconfirmed: the broker was asked to skip, but the cursor does not show it.
            AdminNotFound: the topic or the subscription does not exist.
            AdminNotAllowed: the topic is partitioned or non-persistent.
            AdminError: the admin API failed. Nothing was moved in any case but `SkipUnconfirmed`.
        """
        skipper = Skipper(self.context, topic, subscription, progress=progress)
        return skipper.skip(count, unit, dry_run=dry_run)

    def acknowledge(
        self,
        topic: str,
        subscription: str,
        message_ids: AnyMessageId | Iterable[AnyMessageId],
        *,
        dry_run: bool = False,
    ) -> AckResult:
        """Acknowledge one or several messages of a subscription by their ids, whichever consumer has them, or none.

        That cancels delayed messages, and what is due but not delivered yet. Consumers stay connected, and what they
        have received or prefetched still arrives. Nothing is acknowledged unless every id can be.

        Args:
            topic: the topic, or the partitioned topic if the ids have their partition or their topic.
            subscription: an existing subscription. On Exclusive, and on Key_Shared with sticky ranges, it must have no
                consumers. On Key_Shared, messages of some keys wait for some milliseconds.
            message_ids: an id, or several: live, deserialized, parsed or built from numbers. Any id of a chunked
                message acknowledges all of it. One message of a batch needs `acknowledgmentAtBatchIndexLevelEnabled`
                on the broker, the default since 4.2.
            dry_run: only find the messages.

        Raises:
            MessageIdNotFound: the topic does not have a message; `IncompleteChunkedMessage` if chunks are missing.
            InvalidMessageId: an id names no message, or a batch without a batch index.
            InvalidUse: an id is of another topic, or the subscription is a reader's.
            SubscriptionBusy: the subscription accepts no other consumer now.
            AdminPrecondition: the broker keeps acknowledgements of whole batches only.
            AdminNotFound: the topic or the subscription does not exist; it is not created.
            AdminNotAllowed: the topic is non-persistent, or partitioned and an id has no partition.
            AckNotConfirmed: the cursor does not show the acknowledgements.
            AdminError: the admin API failed. Nothing was acknowledged in any case but `AckNotConfirmed`.
        """
        self.context.callbacks.raise_inside("acknowledge")
        return acknowledge_by_id(self.context, topic, subscription, message_ids, dry_run=dry_run)

    def diagnose(
        self, target: str, *, subscription: str | None = None, limits: DiagnosisLimits | None = None
    ) -> Diagnosis:
        """Find the causes of persistent backlogs; read-only, through the admin API. See `docs/doctor.md`.

        Args:
            target: a namespace `tenant/namespace`, or a topic, partitioned or not.
            subscription: the subscription to diagnose; all by default.
            limits: thresholds of findings, and limits of the number of requests.

        Raises:
            InvalidUse: the target is neither.
            AdminNotFound: the namespace or topic does not exist, or has no such subscription.
            AdminError: the admin API failed.
        """
        return examine(self.context.admin_api(), target, subscription, limits)

    def look(self, topic: str, *, subscription: str | None = None, limits: DiagnosisLimits | None = None) -> Survey:
        """Return a map of a topic: its ledgers, its cursors with their holes, and the kinds of its entries.

        It is read-only, through the admin API. See `docs/look.md`; `pulsar-ext look` draws the map.

        Args:
            topic: a topic, partitioned or not; each partition has a map.
            subscription: the subscription to show; all by default.
            limits: thresholds of findings, and limits of the number of requests; `MapLimits()` by default.

        Raises:
            InvalidUse: the topic name is invalid.
            AdminNotFound: the topic does not exist, or has no such subscription.
            AdminError: the admin API failed.
        """
        return survey(self.context.admin_api(), topic, subscription, limits)

    def get_topic_partitions(self, topic: str) -> list[str]:
        """Return the names of a topic's partitions, or its own name if it is not partitioned."""
        self.context.callbacks.raise_inside("get_topic_partitions")
        known = opening_error_details(self.context, self._connected_url, {"topic": topic})
        with known, authentication_error_details(self._authentication):
            return InterruptibleClient(self.inner, self.context.senders.ask).partitions_of(topic)

    def close(self) -> None:
        """Wait until sent messages are persisted, send pending acknowledgements, and close; may be called twice."""
        self.context.callbacks.raise_inside("close")
        with self._closing:  # a second caller, or the end of the program, waits for the first
            if self._closed:
                return
            for sender in self.context.senders:  # check all before any is closed
                sender.raise_if_interrupting()
            for one in self._open_receivers_():
                raise_if_interrupting("A close", *one._locks_)
            deadline = time.monotonic() + self.context.operation_timeout_seconds
            try:
                with contextlib.suppress(pulsar.PulsarException):  # the messages' callbacks report these errors
                    close_together(self.context.senders.end(), deadline)
                self.context.close_schedulers()
                stop_fetching(self._open_receivers_())
                # A producer may have timed out during its close; a consumer may have been closed by the broker for a
                # seek, or lost its connection.
                with contextlib.suppress(pulsar.AlreadyClosed, pulsar.BrokerMetadataError, pulsar.NotConnected):
                    self._close_inner(self.inner.close)  # no callback may be pending when the program ends
            except Exception:  # after a Ctrl-C or other BaseException, a second close continues
                self._release()
                raise
            self._release()

    def shutdown(self) -> None:
        """Release everything without waiting for the broker: pending messages are lost, as officially.

        Waiting sends raise `AlreadyClosed`, and callbacks that have not been called get it.
        """
        close = self.inner.close_async  # raises in a child process, before any change
        self._closed = True
        senders = self.context.senders.end()
        for sender in senders:
            sender.forget()
        stop_fetching(self._open_receivers_())
        fail_together(senders, lambda done: self._close_inner(partial(close, done)))
        self._release()

    def _after_fork_(self, refusal: Refusing) -> None:
        """Raise on every use in this child process; a lock may have been held during the fork."""
        super()._after_fork_(refusal)
        self.context._after_fork_(refusal)
        self._closing = OwnedLock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_closed(self) -> bool:
        """True after `close()` or `shutdown()`."""
        return self._closed

    def _subscribe_(self, given: Arguments, **options: object) -> Consumer:
        """Subscribe with all arguments of `subscribe()` by name; the options are those of `open_consumer()`."""
        named = official_arguments(pulsar.Client.subscribe, given)
        settings, events = consumer_settings(given)
        options |= {
            "gate": SeekGate(self.inner),
            "events": events,
            "redelivery": RedeliveryOptions(*_redelivery_options(given)),
            "ack_group_time_ms": given["ack_group_time_ms"],
            "max_ack_group_size": given["max_ack_group_size"],
        }
        consumer: Consumer = self._open(open_consumer, pulsar.Client.subscribe, named, options, settings)
        return consumer

    def _open_reader_(self, named: Arguments, **options: object) -> Reader:
        """Create a reader; the options are those of `open_reader()`."""
        opening = partial(self._open, open_reader, pulsar.Client.create_reader, named, options)
        if tolerates_decryption_failure(named):
            name = options["name"] = unique_name()
            opening = partial(opening, configure=lambda one: one.reader_name(name))
        reader: Reader = opening()
        return reader

    def _open(
        self,
        open_one: Callable[..., None],
        method: Callable[..., object],
        named: Arguments,
        options: Arguments,
        configure: Callable[..., object] = lambda _: None,
    ) -> Any:
        """Open a consumer or a reader; close everything again if that fails or is interrupted by a Ctrl-C."""
        named = self._with_schema(named)
        topic, schema = named["topic"], named["schema"]
        opened: list[pulsar.Consumer | pulsar.Reader] = []
        interruptible = self._interruptible(configure)
        try:
            if isinstance(schema, TypedSchema) and isinstance(topic, str):
                schema.adapt_to_topic(partial(interruptible.schema_of, topic))
            check_readable(interruptible, topic, schema)
            open_one(self.context, partial(interruptible.open_receiver, method), named, opened, **options)
            consumers_of(self).append(opened[1])
            return opened[-1]
        except BaseException:
            for one in reversed(opened):  # it would hold the subscription, or messages
                with contextlib.suppress(pulsar.PulsarException, ValueError):
                    one.close()
            consumers = consumers_of(self)
            consumers[:] = [one for one in consumers if one not in opened]
            with self._error_details(named, topic):
                raise

    def _with_schema(self, named: Arguments) -> Arguments:
        """Return the arguments with the schema object that `schema` means."""
        return {**named, "schema": schema_of(named["schema"], self.context.admin_api)}

    def _interruptible(self, configure: Callable[..., object] = lambda _: None) -> InterruptibleClient:
        cluster = self.context.cluster
        # The schema object belongs to the application and must not keep the client alive.
        connected_to = cluster.number if cluster.may_change else int
        versions = VersionLookup(self.inner.get_schema_info, connected_to, connected_to())
        return InterruptibleClient(self.inner, self.context.senders.ask, configure, versions)

    @contextlib.contextmanager
    def _error_details(self, named: Arguments, topics: object) -> Iterator[None]:
        """Add details to the error of an opening, which may have changed the arguments."""
        with (
            opening_error_details(self.context, self._connected_url, named),
            authentication_error_details(self._authentication),
            schema_error_details(self._interruptible(), topics, named["schema"]),
        ):
            yield

    def _connected_url(self) -> str:
        return str(self.get_service_info().service_url)

    def _handles_(self) -> list[OpenSender | Consumer | Reader]:
        return [*self.context.senders, *self._open_receivers_()]

    def _open_receivers_(self) -> list[Consumer | Reader]:
        """Return the open consumers and readers; official ones in the list are internal to this library."""
        return [one for one in consumers_of(self) if isinstance(one, Consumer | Reader)]

    def _given_admins(
        self, admin: Any, arguments: Arguments, *, changes: bool
    ) -> tuple[PulsarAdmin | None, AdminChoice | None]:
        """Return the application's admin API, or a choice of several if the client may change its cluster."""
        several = isinstance(admin, list | tuple)
        if admin is None or not (changes or (several and any(isinstance(one, PulsarAdmin) for one in admin))):
            return (admin if admin is None or isinstance(admin, PulsarAdmin) else admin_at(admin, arguments)), None
        if not changes:
            raise InvalidUse("A client with one service URL takes one PulsarAdmin, or URLs of one cluster; got several")
        each = [*admin] if several else [admin]
        made = [one if isinstance(one, PulsarAdmin) else admin_at(one, arguments) for one in each]
        return None, AdminChoice(self, made, [one for one in made if one not in each])

    def _close_inner(self, close: Callable[[], object]) -> None:
        seconds = self.context.operation_timeout_seconds
        ClientClose(self.inner, self.context.senders, self._open_receivers_(), seconds).close(close)

    def _release(self) -> None:
        self._closed = True
        for one in self._open_receivers_():
            one._release_()
        self.context.release()


_BATCH_SECONDS = 0.5
"""Time in seconds for batch receives to complete before they are ended; their default timeout is 100 ms."""

_background_closes: set[ClientClose] = set()


class ClientClose:
    """Closes a C++ client, in the background if answers are outstanding after `ANSWER_SECONDS`.

    A producer, consumer or reader that is being opened, a pending receive or a request of the last message id would
    leak on close, together with the client's threads, memory and descriptors. `seconds` is the background's timeout.
    """

    def __init__(
        self, inner: InnerClient, senders: OpenSenders, receiving: list[Consumer | Reader], seconds: float
    ) -> None:
        self.inner: InnerClient | Refusing = inner
        self._senders, self._receiving, self._seconds = senders, receiving, seconds
        self._closing = Lock()

    def close(self, close: Callable[[], object]) -> None:
        """Close the client by `close`, when no answer is outstanding."""
        if self._awaits_answers():
            for one in self._receiving:  # completes their pending receives
                with contextlib.suppress(pulsar.PulsarException):
                    self._senders.answer_to(one.inner.close_async)
        if answered_within(ANSWER_SECONDS, self._awaits_answers) or not self._close_later():
            close()

    def close_now(self) -> None:
        """Close the client with outstanding answers; a second caller waits for the first."""
        with self._closing, contextlib.suppress(pulsar.PulsarException):
            self.inner.close()
        _background_closes.discard(self)

    def _after_fork_(self, refusal: Refusing) -> None:
        """Raise on a close in this child process; the lock may have been held during the fork."""
        self.inner, self._closing = refusal, Lock()

    def _close_later(self) -> bool:
        """Close the client on a background thread; return False if no thread can be started any more."""

        def run() -> None:
            answered_within(self._seconds, self._awaits_answers)
            self.close_now()

        refuse_after_fork(self, "Client")
        try:
            threads.start(run, name="pulsar_ext-closing")
        except RuntimeError:
            return False
        _background_closes.add(self)
        return True

    def _awaits_answers(self) -> bool:
        return self._senders.has_open_requests() or any(one._awaits_answer_ for one in self._receiving)


def stop_fetching(receiving: list[Consumer | Reader]) -> None:
    """End all batch receives of the consumers: the C++ client would not complete them."""
    consumers = [one for one in receiving if isinstance(one, Consumer)]
    for one in consumers:
        one._stop_fetching_()
    deadline = time.monotonic() + _BATCH_SECONDS
    for one in consumers:
        one._end_batches_(deadline)


_EXIT_SECONDS = 0.05
"""Time in seconds for threads to return from the C++ client at the end of the program."""


_open_clients: weakref.WeakSet[Client] = weakref.WeakSet()
_workers: set[int] = set()


def _close_at_exit(client: Client) -> None:
    """Close a client at the end of the program, or of a multiprocessing worker process."""
    _open_clients.add(client)
    processes = sys.modules.get("multiprocessing.process")
    if processes is not None and processes.parent_process() is not None and os.getpid() not in _workers:
        _workers.add(os.getpid())  # such a process does not run atexit handlers
        Finalize(None, _close_all, exitpriority=100)


def _close_all() -> None:
    """Close all open clients: an open C++ client would abort the process or lose pending messages."""
    for client in list(_open_clients):
        handles = client._handles_()
        if not client.is_closed:
            with contextlib.suppress(Exception):
                client.close()
        for one in handles:
            one._block_()
    for closing in list(_background_closes):
        closing.close_now()
    if threads.IS_PATCHED or threading.active_count() > 1:
        # Python ends daemon threads anywhere; inside the C++ client this aborts the process.
        threads.sleep(_EXIT_SECONDS)


atexit.register(_close_all)
