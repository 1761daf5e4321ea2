"""Methods of the client beyond opening and closing: builders, look-ups, diagnosis and skipping."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pulsar

from pulsar_ext._runtime.statistics import ClientStats
from pulsar_ext.consumer import Consumer
from pulsar_ext.doctor.examination import examine
from pulsar_ext.key_shared.builders import ConsumerBuilder, ReaderBuilder
from pulsar_ext.key_shared.reader_group import RangeReaderGroup, open_group
from pulsar_ext.look.survey import survey
from pulsar_ext.reader import Reader
from pulsar_ext.request.envelope import in_same_namespace
from pulsar_ext.request.replier import Replier, ReplierOptions, Replying
from pulsar_ext.request.requester import Requester
from pulsar_ext.skip.skipper import Skipper, SkipResult, message_id_after

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pulsar_ext._runtime.context import ClientContext
    from pulsar_ext.doctor.findings import Diagnosis, DiagnosisLimits
    from pulsar_ext.ids.message_id import AnyMessageId, MessageId
    from pulsar_ext.key_shared.hash_ranges import KeyHashRanges, RangesLike
    from pulsar_ext.key_shared.hashing import KeyFormsMode
    from pulsar_ext.key_shared.reader_group import Filtering
    from pulsar_ext.look.survey import Survey
    from pulsar_ext.message import Message
    from pulsar_ext.process.actions import Action
    from pulsar_ext.schema.typed import TypedSchema
    from pulsar_ext.skip.boundaries import Unit


class ClientTools:
    """Methods that `Client` adds to the official one."""

    __slots__ = ()
    context: ClientContext

    def new_reader(self, schema: type | TypedSchema | None = None) -> ReaderBuilder:
        """Return a builder, Java's `newReader()`: `client.new_reader().topic(t).start_message_id(id).create()`."""
        return ReaderBuilder(self.context, schema)

    def stats(self) -> ClientStats:
        """Return statistics of all open producers and consumers, from the admin API.

        Raises:
            AdminError: the admin API failed.
            pulsar.AlreadyClosed: the client is closed.
        """
        self.context.callbacks.raise_inside("stats")
        self.context.senders.raise_if_ended()
        received_by = self.context.opener._open_receivers_()
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
            pulsar.PulsarException: the requester could not be opened.
        """
        self.context.callbacks.raise_inside("requester")
        requester = Requester(
            self.context,
            topic,
            reply_topic=reply_topic,
            subscription_name=subscription_name,
            timeout_ms=timeout_ms,
            schema=schema,
            reply_schema=reply_schema,
            producer_options=producer_options,
        )
        try:
            return requester.open()
        except BaseException:  # such as a Ctrl-C: the caller does not get the requester
            with contextlib.suppress(pulsar.PulsarException):
                requester.close()
            raise

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
            pulsar.PulsarException: the replier could not be opened.
        """
        self.context.callbacks.raise_inside("replier")
        has_letters = bool(consumer_options.get("enable_retry"))
        replying = Replying(handler, subscription_name, on_error, may_reply_to, has_letters)
        options = ReplierOptions(topic, subscription_name, schema, reply_schema, consumer_options)
        return Replier(self.context, options, replying)

    def resolve_message_id(self, topic: str, message_id: AnyMessageId) -> MessageId:
        """Resolve an id through the admin API to the id of its chunked message, if it is part of one.

        Args:
            topic: the topic, or the partitioned topic if the id has its partition.
            message_id: the id of any chunk of the message.

        Returns:
            The `ChunkMessageId` of the whole message, or an id equal to the given one if it is not chunked.

        Raises:
            MessageIdNotFound: the entry does not exist; `IncompleteChunkedMessage` if chunks of the message are lost.
            MessageIdUnresolved: the message's chunks are more than 10,000 entries apart.
            AdminError: the admin API failed.
        """
        return self.context.resolver.resolve(topic, message_id)

    def message_id_after(self, topic: str, message_id: AnyMessageId, count: int) -> MessageId | None:
        """Return the id of the message `count` messages after another one.

        Messages are counted in the order of a reader: each message of a batch, and a chunked message once, at its last
        chunk.

        Args:
            topic: the topic, or the partitioned topic if the id has its partition.
            message_id: any id of the first message, or `MessageId.earliest`, the position before all messages.
            count: the number of messages, 0 or more.

        Returns:
            The message id; None past the end of the topic.

        Raises:
            InvalidUse: the count is invalid, or the id is `MessageId.latest`.
            InvalidMessageId: the id is that of a batch without a batch index.
            MessageIdNotFound: the topic does not have the message.
            AdminNotAllowed: the topic is partitioned or non-persistent.
            AdminError: the admin API failed.
        """
        start = self.context.resolver.message_of(topic, message_id)
        return message_id_after(self.context, topic, start, count)

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
