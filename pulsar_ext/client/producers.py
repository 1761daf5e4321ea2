"""Creating producers: which sender fits the arguments, and how the C++ producer behind it is opened instead.

A batched producer makes its batches itself, on a partitioned topic one for each partition. It is left to the official
path where it would start partitions lazily. Without batching, chunks and deduplication make it ours.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

import pulsar

from pulsar_ext._native.asking import AskingClient
from pulsar_ext._native.handles import ProducerHandle
from pulsar_ext._native.messages import truthy
from pulsar_ext._runtime.callbacks import guard_router
from pulsar_ext.dedup.chunked_sender import ChunkedSender, ChunkRecovery
from pulsar_ext.dedup.opening import Opening, Recall, check_deduplication_arguments, open_surely
from pulsar_ext.dedup.sender import DedupDispatcher, DedupSender, DuplicateCheck
from pulsar_ext.errors import InvalidUse, ProducerBroken
from pulsar_ext.intercept.chain import InterceptedSender, ProducerChain, look_after
from pulsar_ext.message import Received, adopt_message
from pulsar_ext.produce.batch import BatchingConfig
from pulsar_ext.produce.batching import BatchingSender, SeparatedSender, batching_for_keys, mixed_key_check
from pulsar_ext.produce.direct import DirectSender, ResendingDispatcher, ResendingSender
from pulsar_ext.produce.dispatch import BatchDispatcher
from pulsar_ext.produce.options import SendTiming, SequenceCounter, run_on
from pulsar_ext.produce.partitioned import PartitionedSender
from pulsar_ext.produce.pending import PendingMessages
from pulsar_ext.produce.router import HashingScheme, Routing
from pulsar_ext.produce.sender import close_quietly
from pulsar_ext.producer import Producer
from pulsar_ext.schema.key_value import KeyValueEncoding, KeyValueSchema

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulsar_ext._native.answer import Answer
    from pulsar_ext._native.handles import ClientDoor
    from pulsar_ext._runtime.context import ClientContext
    from pulsar_ext.dedup.sequence_ids import SequenceIds
    from pulsar_ext.produce.sender import Sender


def make_producer(
    client: ClientDoor,
    context: ClientContext,
    named: dict[str, Any],
    *,
    deduplication: bool | Recall,
    interceptors: Any = None,
    hashing_scheme: HashingScheme = HashingScheme.BoostHash,
) -> Producer[Any]:
    """Create a producer.

    Args:
        client: of this library.
        context: of the client.
        named: the official arguments by name.
        deduplication: whether it shall be effectively once; a `Recall` if also where the broker forgets its name.
        interceptors: of its messages, see `Client.create_producer()`.
        hashing_scheme: of keys, see there as well.

    Raises:
        InvalidUse, DeduplicationDisabled, ProducerForgotten, AdminError: with deduplication; nothing was sent.
    """
    chain = ProducerChain.of(context, interceptors)
    schema = named["schema"]
    separates = isinstance(schema, KeyValueSchema) and schema.encoding is KeyValueEncoding.SEPARATED
    if separates:
        named = batching_for_keys(named)
    factory = _SenderFactory(client, context, named, deduplication=deduplication, hashing_scheme=hashing_scheme)
    try:
        sender: Any = factory.open()
        if separates:
            sender = SeparatedSender(sender, schema)
        if chain is not None:
            sender = InterceptedSender(sender, chain)
        producer: Producer[Any] = Producer._over_(sender, schema, client)
        if chain is not None:
            chain.show(producer)
            look_after(context, chain, named["topic"])
    except BaseException:
        factory.close_again()
        raise
    finally:
        factory.opened = None
    context.producers.add(producer)
    return producer


class _SenderFactory:
    """Opens the sender that fits the arguments of one `create_producer`; see `make_producer`."""

    def __init__(
        self,
        client: ClientDoor,
        context: ClientContext,
        named: dict[str, Any],
        *,
        deduplication: bool | Recall,
        hashing_scheme: HashingScheme,
    ) -> None:
        self._client = client
        self._context = context
        self._named = named
        self._topic, self._cluster = named["topic"], context.cluster.number()
        self._deduplication = bool(deduplication)
        if not isinstance(hashing_scheme, HashingScheme):
            raise InvalidUse(f"hashing_scheme is a HashingScheme, not {hashing_scheme!r}. Nothing was opened.")
        self._hashing_scheme = hashing_scheme
        self._recall = deduplication if isinstance(deduplication, Recall) else None
        self.opened: list[Answer] | None = []
        """What gives the C++ producers, while nobody else has them."""
        self._router: Callable[[Any, int], int] | None = None
        router = named["message_router"]
        if router is not None:
            if not callable(router):
                raise InvalidUse(f"message_router must be a function, not {router!r}. Nothing was opened.")
            self._router = guard_router(lambda message, count: router(adopt_message(message, Received), count))

    def open(self) -> Sender:
        """Open the sender."""
        named = self._named
        if self._deduplication:
            check_deduplication_arguments(named)
            _check_types(named)
        elif self._hashes_as_others():
            _check_types(named)
        elif not _is_ours(named):
            return self._direct()
        topics = self._partitions()
        if topics is None:
            if not (self._deduplication or _is_ours(named)):
                return self._direct()
            return self._on_topic(self._topic, BatchingConfig(named))
        lazy = named["lazy_start_partitioned_producers"] and named["batching_enabled"]
        if lazy and not (self._deduplication or self._hashes_as_others()):
            return self._direct()
        return self._partitioned(topics)

    def _hashes_as_others(self) -> bool:
        """Whether keys are hashed as the C++ client cannot be asked to: partitions are chosen here then."""
        named = self._named
        if self._hashing_scheme is HashingScheme.BoostHash or (named["batching_enabled"] and named["chunking_enabled"]):
            return False  # the official client refuses both together
        return named["message_router"] is None

    def _partitions(self) -> list[str] | None:
        """Give the partitions of the topic, None if it has none.

        Raises:
            pulsar.PulsarException: that could not be found out; the official producer asks the same, and raises it too.
        """
        topic = self._topic
        try:
            found = self._client.get_topic_partitions(topic)
        except pulsar.AuthenticationError:
            self._open_native()  # raises what the supplier of a token raised, which the C++ client does not say here
            raise
        if len(found) > 1 or (found and found[0].endswith("-partition-0") and not topic.endswith("-partition-0")):
            return found
        return None

    def _open_one(self, **changed: Any) -> pulsar.Producer:
        """Open an official producer on a topic without partitions, or on one partition; see `_open_native`."""
        official, configuration = self._open_native(**changed)
        run_on(configuration)
        return official

    def _open_native(self, **changed: Any) -> tuple[pulsar.Producer, Any]:
        """Open an official producer with the arguments, some of them changed; give its configuration as well."""
        named = {**self._named, **changed}
        named["initial_sequence_id"] = truthy(named["initial_sequence_id"])
        configurations: list[Any] = []
        official = AskingClient(self._client.inner, self._ask, configurations.append).open_producer(**named)
        return official, configurations[0]

    def _ask(self, begin: Callable[[Answer], object]) -> Any:
        """Begin to open something, and wait for it."""

        def noted(answer: Answer) -> None:
            if self.opened is not None:
                self.opened.append(answer)  # before it begins: what a Ctrl-C interrupts is closed again
            begin(answer)

        return self._context.senders.ask(noted)

    def close_again(self) -> None:
        """Close what was opened for a producer that nobody gets: its name would be taken."""
        for answer in self.opened or ():
            answer.close_again()

    def _direct(self) -> DirectSender:
        """Open a sender on the official path."""
        named, limit = self._named, None
        most, across = named["max_pending_messages"], named["max_pending_messages_across_partitions"]
        changed: dict[str, Any] = {"message_router": self._router}
        bounded = all(isinstance(one, int) and one > 0 for one in (most, across))
        if bounded and named["block_if_queue_full"] is True and (topics := self._partitions()):
            # Who waits for room in the official queue of a partition as it is closed, waits for ever.
            limit = PendingMessages(min(most * len(topics), across))
            changed |= {"max_pending_messages": 0, "block_if_queue_full": False}
        official, configuration = self._open_native(**changed)
        timing = None
        if named["send_timeout_millis"] > 0 and not named["lazy_start_partitioned_producers"]:
            timing = SendTiming(configuration, named["send_timeout_millis"])
        return DirectSender(
            ProducerHandle(official),
            self._context,
            limit=limit,
            waits_inside=limit is None and bool(named["block_if_queue_full"]),
            mixed_keys=mixed_key_check(named, self._context),
            timing=timing,
        )

    def _on_topic(self, topic: str, config: BatchingConfig) -> BatchingSender:
        """Open a sender that makes its own batches, on a topic without partitions or on one partition."""
        changed = {
            "topic": topic,
            "batching_enabled": False,
            "message_router": None,
            "max_pending_messages": 0,
            "block_if_queue_full": False,
            "lazy_start_partitioned_producers": False,
        }
        mixed_keys = mixed_key_check(self._named, self._context) if config.partition < 0 else None
        if self._deduplication:
            return self._deduplicating(topic, config, changed)
        handle = ProducerHandle(self._open_one(**changed))
        if self._named["chunking_enabled"]:
            return self._resending(handle, config, changed)
        numbers = SequenceCounter(int(handle.last_sequence_id()))
        return BatchingSender(BatchDispatcher(handle, self._context, config), numbers, mixed_keys=mixed_keys)

    def _resending(self, handle: ProducerHandle, config: BatchingConfig, changed: dict[str, Any]) -> ResendingSender:
        """Open a sender of messages in chunks that are not lost to a connection that ends amid one."""
        name, first = self._named["producer_name"], int(handle.last_sequence_id())
        if name and first < 0 and self._named["initial_sequence_id"] is None:
            # What a process of this name had half written when it was killed goes by its name and a number, too.
            first = time.time_ns() // 1000

        def open_again(name: str | None, last: int) -> pulsar.Producer:
            return self._open_one(**changed, producer_name=name, initial_sequence_id=last)

        dispatch = ResendingDispatcher(
            handle,
            self._context,
            config,
            open_again,
            named=bool(name),
            timeout=self._named["send_timeout_millis"] / 1000,
        )
        return ResendingSender(dispatch, SequenceCounter(first), mixed_keys=None)

    def _deduplicating(self, topic: str, config: BatchingConfig, changed: dict[str, Any]) -> DedupSender:
        """Open a sender that is effectively once, where its name's sequence ids are sure."""
        named, name, admin = self._named, self._named["producer_name"], self._context.admin_api()
        chunked = named["chunking_enabled"]
        # The broker's number, not an application's: it is read from a producer that was given none.
        changed |= {"send_timeout_millis": 0, "initial_sequence_id": None}
        group = config.bounds.messages if config.by_key else 0
        first = named["initial_sequence_id"]
        opening = Opening(
            admin, topic, name, first, group, most_pending=config.limit, chunked=chunked, recall=self._recall
        )

        def open_as(name: str) -> pulsar.Producer:
            if self._context.cluster.number() != self._cluster:
                raise ProducerBroken(
                    f"The client is connected to another cluster than the producer {name} on {topic} was opened on, "
                    "and sequence ids belong to one cluster. Nothing was sent there. Create the producer again.",
                    last_published=None,
                )
            return self._open_one(**changed, producer_name=name)

        sequence: SequenceIds
        official, sequence = open_surely(lambda: open_as(name), close_quietly, opening)
        timeout = named["send_timeout_millis"] / 1000
        check = DuplicateCheck(admin, topic, name, config.partition, open_as, timeout, official.last_sequence_id())
        open_again = partial(open_as, name)
        dispatch = DedupDispatcher(
            ProducerHandle(official), self._context, config, sequence, timeout, check, open_again, self._cluster
        )
        if not chunked:
            mixed_keys = mixed_key_check(named, self._context) if config.partition < 0 else None
            return DedupSender(dispatch, mixed_keys=mixed_keys)
        recovery = ChunkRecovery(
            open_as,
            admin,
            opening.settle,
            topic,
            name,
            chunk_bytes=opening.chunk_bytes(),
            half_written=opening.half_written,
        )
        return ChunkedSender(dispatch, recovery)

    def _partitioned(self, topics: list[str]) -> PartitionedSender:
        """Open a sender that makes its own batches, on a partitioned topic."""
        routing = Routing(
            self._named,
            BatchingConfig(self._named),
            len(topics),
            self._router,
            deduplicates=self._deduplication,
            scheme=self._hashing_scheme,
        )
        return PartitionedSender(
            self._topic,
            self._context,
            self._open_parts(topics, 0),
            routing=routing,
            grow=lambda begin: self._open_parts(self._partitions() or [], begin),
            mixed_keys=mixed_key_check(self._named, self._context),
        )

    def _open_parts(self, topics: list[str], begin: int) -> list[BatchingSender]:
        """Open senders for the partitions from `begin` on: all of them, or none."""
        most = min(
            self._named["max_pending_messages"],
            self._named["max_pending_messages_across_partitions"] // max(len(topics), 1),
        )
        parts: list[BatchingSender] = []
        try:
            for index in range(begin, len(topics)):
                config = BatchingConfig(self._named, limit=most, partition=index)
                parts.append(self._on_topic(topics[index], config))
        except BaseException:
            for part in parts:
                close_quietly(part.handle)
            raise
        return parts


def _is_ours(named: dict[str, Any]) -> bool:
    """Whether the arguments are those of a producer of batches or chunks, and of types that the official client takes.

    On a topic that is not persistent the official client takes no notice of `chunking_enabled`.
    """
    batched, chunked = named["batching_enabled"], named["chunking_enabled"]
    return batched is not chunked and not _misfits(named)


_TYPES = {
    "topic": str,
    "batching_enabled": bool,
    "batching_max_messages": int,
    "batching_max_allowed_size_in_bytes": int,
    "batching_max_publish_delay_ms": int,
    "batching_type": pulsar.BatchingType,
    "block_if_queue_full": bool,
    "chunking_enabled": bool,
    "lazy_start_partitioned_producers": bool,
    "max_pending_messages": int,
    "max_pending_messages_across_partitions": int,
    "send_timeout_millis": int,
}


def _misfits(named: dict[str, Any]) -> str:
    """Name the arguments that the official client does not take."""
    if odd := [name for name, kind in _TYPES.items() if not isinstance(named[name], kind)]:
        return ", ".join(odd)
    least = {"max_pending_messages": 0, "max_pending_messages_across_partitions": 0, "batching_max_publish_delay_ms": 0}
    if named["batching_enabled"]:
        least |= {"batching_max_messages": 2, "batching_max_allowed_size_in_bytes": 0}
    return ", ".join(name for name, lowest in least.items() if named[name] < lowest)


def _check_types(named: dict[str, Any]) -> None:
    """Refuse what the official client would refuse, before anything is opened."""
    if misfits := _misfits(named):
        raise InvalidUse(
            f"An argument of create_producer is of another type, or out of range: {misfits}. Nothing was opened."
        )
