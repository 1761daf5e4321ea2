"""What a client does besides opening and closing: it builds, finds out, looks, and skips."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pulsar
import pulsar.schema

from pulsar_ext._runtime.statistics import ClientStats
from pulsar_ext.consumer import Consumer
from pulsar_ext.doctor.examination import examine
from pulsar_ext.key_shared.builders import ConsumerBuilder, ReaderBuilder
from pulsar_ext.key_shared.reader_group import RangeReaderGroup, open_group
from pulsar_ext.look.survey import survey
from pulsar_ext.reader import Reader
from pulsar_ext.request.envelope import in_same_namespace
from pulsar_ext.request.replier import Replier, ReplierOptions, Replying
from pulsar_ext.request.requester import Requester, RequesterOptions
from pulsar_ext.skip.skipper import Skipper, SkipResult, message_id_after

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pulsar_ext._runtime.context import ClientContext
    from pulsar_ext.doctor.findings import Diagnosis, DiagnosisLimits
    from pulsar_ext.ids.message_id import MessageId
    from pulsar_ext.key_shared.hash_ranges import KeyHashRanges, RangesLike
    from pulsar_ext.key_shared.hashing import KeyFormsMode
    from pulsar_ext.key_shared.reader_group import Filtering
    from pulsar_ext.look.survey import Survey
    from pulsar_ext.message import Message
    from pulsar_ext.process.actions import Action
    from pulsar_ext.skip.boundaries import Unit


class ClientTools:
    """What a `Client` offers on top of the official one."""

    __slots__ = ()
    context: ClientContext

    def new_reader(self, schema: Any = None) -> ReaderBuilder:
        """Begin a reader, as Java's `newReader()`: `client.new_reader().topic(t).start_message_id(id).create()`."""
        return ReaderBuilder(self.context, schema)

    def stats(self) -> ClientStats:
        """Give statistics of everything that is open, which the admin API is asked for.

        Raises:
            AdminError: the admin API refused, or did not answer.
            pulsar.AlreadyClosed: the client is closed.
        """
        self.context.callbacks.refuse("stats")
        self.context.senders.refuse_ended()
        received_by = self._received_by_()
        return ClientStats(
            consumers=tuple(one.stats() for one in received_by if isinstance(one, Consumer)),
            producers=tuple(one.stats() for one in list(self.context.producers) if not one.sender.closed),
            readers=sum(isinstance(one, Reader) for one in received_by),
        )

    def _received_by_(self) -> list[Consumer | Reader]:
        """Give the consumers and readers that are open."""
        raise NotImplementedError

    def create_reader_group(
        self,
        topic: str,
        start_message_id: Any,
        ranges: int | Sequence[RangesLike | KeyHashRanges],
        *,
        start_message_id_inclusive: bool = False,
        filtering: Filtering = "auto",
        key_forms: KeyFormsMode = "auto",
        receiver_queue_size: int = 1000,
    ) -> RangeReaderGroup:
        """Open readers that share a topic by key ranges and, where its batches allow it, read it only once together.

        Args:
            topic: with or without partitions; it must exist.
            start_message_id: where to start; on a partitioned topic `MessageId.earliest` or `latest`.
            ranges: how many readers, or the ranges of each, which cover every slot once.
            start_message_id_inclusive: whether to read the message of the start id too.
            filtering: "broker" makes all readers stand on one sticky Key_Shared subscription, which is deleted at
                `close()`; "client" makes each read everything and keep its part; "auto" looks at the topic's batches
                and says in `group.filtering` and `group.reason` what it chose and why.
            key_forms: how to tell a key sent as bytes from base64 text, and an empty key from none; see `KeyForms`.
            receiver_queue_size: of each reader.

        Raises:
            InvalidKeyHashRange, NoSuchTopic, InvalidUse: as their names say; nothing was opened.
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

    def new_consumer(self, schema: Any = None) -> ConsumerBuilder:
        """Begin a consumer, as Java's `newConsumer()`: `client.new_consumer().topic(t)….subscribe()`."""
        return ConsumerBuilder(self.context, schema)

    def requester(
        self,
        topic: str,
        *,
        reply_topic: str | None = None,
        subscription_name: str | None = None,
        timeout_ms: int = 30_000,
        schema: Any = None,
        reply_schema: Any = None,
        **producer_options: Any,
    ) -> Requester:
        """Open a requester: it sends requests to a topic, and gives their replies; see `docs/request.md`.

        Args:
            topic: where requests go.
            reply_topic: where replies come; by default a topic of its own, `<topic>-replies-<random>`. Requesters that
                share one get the replies of all of them.
            subscription_name: of the replies; by default a random one, which a requester that dies leaves behind.
            timeout_ms: how long a request may take, in milliseconds, where it does not say so itself.
            schema: of requests; bytes by default.
            reply_schema: of replies; bytes by default.
            **producer_options: of `create_producer()`; chunks are sent, if there are no batches.

        Raises:
            InvalidUse: one of these is not valid; nothing was opened.
            pulsar.PulsarException: it could not be opened.
        """
        self.context.callbacks.refuse("requester")
        options = RequesterOptions(
            topic,
            reply_topic,
            subscription_name,
            timeout_ms,
            _or_bytes(schema),
            _or_bytes(reply_schema),
            producer_options,
        )
        requester = Requester(self.context, options)
        try:
            return requester.open()
        except BaseException:  # such as a Ctrl-C: nobody has what was opened
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
        schema: Any = None,
        reply_schema: Any = None,
        **consumer_options: Any,
    ) -> Replier:
        """Open a replier: its handler answers the requests on a topic, once it is `run()`; see `docs/request.md`.

        Args:
            topic: where requests come.
            handler: a function of a request, whose result is the content of the reply. An iterator gives several, one
                after the other.
            subscription_name: what repliers that share requests have in common, and the name that replies say.
            on_error: what becomes of a request whose handler raised, as in `Consumer.process()`. By default the
                requester is told, and so it always is of a `RequestFailed`.
            may_reply_to: whether a request on the first topic may have its replies on the second one; by default where
                that is in the same namespace. A request that may not is left out, and logged.
            schema: of requests; bytes by default.
            reply_schema: of replies; bytes by default.
            **consumer_options: of `subscribe()`; a Shared subscription by default.

        Raises:
            InvalidUse: one of these is not valid; nothing was opened.
            pulsar.PulsarException: it could not be opened.
        """
        self.context.callbacks.refuse("replier")
        has_letters = bool(consumer_options.get("enable_retry"))
        replying = Replying(handler, subscription_name, on_error, may_reply_to, has_letters)
        options = ReplierOptions(topic, subscription_name, _or_bytes(schema), _or_bytes(reply_schema), consumer_options)
        return Replier(self.context, options, replying).open()

    def resolve_message_id(self, topic: str, message_id: Any) -> MessageId:
        """Find out through the admin API whether an id is part of a chunked message.

        Args:
            topic: the topic, or the partitioned topic if the id names its partition.
            message_id: any id: of the message's last chunk, or of any other chunk of it.

        Returns:
            The `ChunkMessageId` of the whole message, or an id equal to the given one if it is not chunked.

        Raises:
            MessageIdNotFound: no such entry; `IncompleteChunkedMessage` if chunks of the message are gone.
            MessageIdUnresolved: the message's chunks are more than 10,000 entries apart.
            AdminError: the admin API refused or did not answer.
        """
        return self.context.resolver.resolve(topic, message_id)

    def message_id_after(self, topic: str, message_id: Any, count: int) -> MessageId | None:
        """Find the message that is so many messages behind another.

        Messages count in the order in which a reader gets them: each one of a batch, and a chunked one once, where its
        last chunk is.

        Args:
            topic: the topic, or the partitioned topic if the id names its partition.
            message_id: any id of the one message, or `MessageId.earliest`, which stands before the first.
            count: how many messages behind it, 0 or more.

        Returns:
            The id of the other message, None past the end of the topic.

        Raises:
            InvalidUse: the count is not valid, or the id is `MessageId.latest`.
            InvalidMessageId: the id names a batch and not which message of it.
            MessageIdNotFound: the topic does not hold the message.
            AdminNotAllowed: the topic is a partitioned parent, or not persistent.
            AdminError: the admin API refused or did not answer.
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
        """Skip messages that a subscription has not acknowledged: exactly so many, and none of them in part.

        Args:
            topic: a topic without partitions, or one partition.
            subscription: must exist; with or without consumers, which stay connected.
            count: how many; past the end, all there are.
            unit: `message`, or `entry` as the broker's own skip counts.
            dry_run: only find out where the cursor would go.
            progress: show a progress bar on standard error where the topic has to be read, if `rich` is installed.

        Raises:
            InvalidUse: the count or the unit is not valid.
            SkipInsideMessage: that would be inside a message; it says which two counts are possible.
            CursorMoved: somebody acknowledged between the plan and its execution.
            SkipUnconfirmed: the broker was asked to skip, and the cursor does not show it.
            AdminNotFound: no such topic or subscription.
            AdminNotAllowed: the topic is a partitioned parent, or not persistent.
            AdminError: the admin API refused or did not answer. All of these but `SkipUnconfirmed`: nothing was moved.
        """
        skipper = Skipper(self.context, topic, subscription, progress=progress)
        return skipper.skip(count, unit, dry_run=dry_run)

    def diagnose(
        self, target: str, *, subscription: str | None = None, limits: DiagnosisLimits | None = None
    ) -> Diagnosis:
        """Find out why backlogs do not go away; it only reads, over the admin API. See `docs/doctor.md`.

        Args:
            target: a namespace, `tenant/namespace`, or a topic, with or without partitions.
            subscription: the one to look at; all by default.
            limits: what is a finding, and what finding it may cost.

        Raises:
            InvalidUse: the target is neither.
            AdminNotFound: no such namespace or topic, or none of its topics has the subscription.
            AdminError: the admin API refused or did not answer.
        """
        return examine(self.context.admin_api(), target, subscription, limits)

    def look(self, topic: str, *, subscription: str | None = None, limits: DiagnosisLimits | None = None) -> Survey:
        """Look at a topic as a map: its ledgers, its cursors with their holes, and what its entries are.

        It only reads, over the admin API. See `docs/look.md`; `pulsar-ext look` draws the same.

        Args:
            topic: with or without partitions, each of which has a map.
            subscription: the one to look at; all by default.
            limits: what is a finding, and what the look may cost; `MapLimits()` by default.

        Raises:
            InvalidUse: it is no topic.
            AdminNotFound: no such topic, or it does not have the subscription.
            AdminError: the admin API refused or did not answer.
        """
        return survey(self.context.admin_api(), topic, subscription, limits)


def _or_bytes(schema: Any) -> Any:
    return pulsar.schema.BytesSchema() if schema is None else schema
