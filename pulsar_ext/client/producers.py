"""Creation of producers: the choice of the sender, and the opening of its C++ producers.

A batched producer cuts its own batches, per partition on a partitioned topic. The official path is used with lazily
started partitions. Without batching, chunking and deduplication use this library's senders.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import pulsar

from pulsar_ext._native.answer import Answer
from pulsar_ext._native.handles import ClientHandle, ProducerHandle
from pulsar_ext._native.interruptible import InterruptibleClient
from pulsar_ext._native.messages import truthy
from pulsar_ext._native.signatures import Arguments, binding
from pulsar_ext._runtime.callbacks import guard_router
from pulsar_ext._runtime.context import ClientContext
from pulsar_ext.dedup.opening import Opening, Recall, check_deduplication_arguments
from pulsar_ext.dedup.sender import ChunkedSender, DedupSender
from pulsar_ext.errors import InvalidUse, ProducerBroken
from pulsar_ext.intercept import InterceptedSender, ProducerChain, ProducerInterceptor, register_chain
from pulsar_ext.message import Received, adopt_message
from pulsar_ext.produce.batch import BatchingConfig
from pulsar_ext.produce.batching import BatchingSender, SeparatedSender, batching_for_keys, mixed_key_check
from pulsar_ext.produce.direct import DirectSender, ResendingSender
from pulsar_ext.produce.options import SendTiming, SequenceCounter, keep_timeout_running
from pulsar_ext.produce.outcome import PendingMessages
from pulsar_ext.produce.partitioned import PartitionedSender
from pulsar_ext.produce.router import HashingScheme, Routing
from pulsar_ext.produce.sender import Sender, close_quietly
from pulsar_ext.producer import Producer
from pulsar_ext.schema.key_value import KeyValueEncoding, KeyValueSchema


def make_producer(
    client: ClientHandle,
    context: ClientContext,
    named: Arguments,
    *,
    deduplication: bool | Recall,
    interceptors: Sequence[ProducerInterceptor] | ProducerChain | None,
    hashing_scheme: HashingScheme,
) -> Producer:
    """Create a producer; for the arguments see `Client.create_producer()`."""
    chain = ProducerChain.of(context, interceptors)
    schema = named["schema"]
    separates = isinstance(schema, KeyValueSchema) and schema.encoding is KeyValueEncoding.SEPARATED
    if separates:
        named = batching_for_keys(named)
    factory = _SenderFactory(client, context, named, deduplication=deduplication, hashing_scheme=hashing_scheme)
    try:
        sender: Sender = factory.open()
        if separates:
            sender = SeparatedSender(sender, schema)
        if chain is not None:
            sender = InterceptedSender(sender, chain)
        producer: Producer = Producer._over_(sender, schema, client)
        if chain is not None:
            chain.show(producer)
            register_chain(context, chain, named["topic"])
    except BaseException:
        factory.close_abandoned()
        raise
    finally:
        factory.opened = None
    context.producers.add(producer)
    return producer


class _SenderFactory:
    """Opens the sender for the arguments of one `create_producer()`."""

    def __init__(
        self,
        client: ClientHandle,
        context: ClientContext,
        named: Arguments,
        *,
        deduplication: bool | Recall,
        hashing_scheme: HashingScheme,
    ) -> None:
        self._client, self._context, self._named = client, context, named
        self._topic, self._cluster = named["topic"], context.cluster.number()
        self._deduplication = bool(deduplication)
        if not isinstance(hashing_scheme, HashingScheme):
            raise InvalidUse(f"hashing_scheme must be a HashingScheme, got {hashing_scheme!r}. Nothing was opened.")
        self._hashing_scheme = hashing_scheme
        self._recall = deduplication if isinstance(deduplication, Recall) else None
        self.opened: list[Answer] | None = []
        """Calls that open C++ producers, until the producer that owns these is returned."""
        router = named["message_router"]
        if not (router is None or callable(router)):
            raise InvalidUse(f"message_router must be a function, got {router!r}. Nothing was opened.")
        self._router = router and guard_router(lambda message, count: router(adopt_message(message, Received), count))

    def open(self) -> Sender:
        named = self._named
        if self._deduplication:
            check_deduplication_arguments(named)
        if self._deduplication or self._chooses_partitions():
            if invalid := _invalid_arguments(named):
                raise InvalidUse(
                    "Arguments of create_producer() have a wrong type or are out of range: "
                    f"{invalid}. Nothing was opened."
                )
        elif not _has_own_sender(named):
            return self._direct()
        topics = self._partitions()
        if topics is None:
            if not (self._deduplication or _has_own_sender(named)):
                return self._direct()
            return self._on_topic(self._topic, BatchingConfig(named))
        lazy = named["lazy_start_partitioned_producers"] and named["batching_enabled"]
        if lazy and not (self._deduplication or self._chooses_partitions()):
            return self._direct()
        return self._partitioned(topics)

    def _chooses_partitions(self) -> bool:
        """Return whether partitions are chosen here, because the C++ client does not have the hash."""
        named = self._named
        if self._hashing_scheme is HashingScheme.BoostHash or (named["batching_enabled"] and named["chunking_enabled"]):
            return False  # the official client rejects batching with chunking
        return named["message_router"] is None

    def _partitions(self) -> list[str] | None:
        """Return the partitions of the topic, None if it is not partitioned."""
        topic = self._topic
        try:
            found = self._client.get_topic_partitions(topic)
        except pulsar.AuthenticationError:
            self._open_native()  # raises the token supplier's exception, which the C++ client does not report here
            raise
        if len(found) > 1 or (found and found[0].endswith("-partition-0") and not topic.endswith("-partition-0")):
            return found
        return None

    def _open_one(self, **changed: object) -> pulsar.Producer:
        """Open an official producer on a topic that is not partitioned, or on one partition; see `_open_native()`."""
        official, configuration = self._open_native(**changed)
        keep_timeout_running(configuration)
        return official

    def _open_native(self, **changed: object) -> tuple[pulsar.Producer, binding.ProducerConfiguration]:
        """Open an official producer with some arguments changed; return it and its configuration."""
        named: Arguments = {**self._named, **changed}
        named["initial_sequence_id"] = truthy(named["initial_sequence_id"])
        configurations: list[binding.ProducerConfiguration] = []
        official = InterruptibleClient(self._client.inner, self._ask, configurations.append).open_producer(**named)
        return official, configurations[0]

    def _ask(self, begin: Callable[[Answer], object]) -> object:

        def start(answer: Answer) -> None:
            if self.opened is not None:
                self.opened.append(answer)  # before the call starts, so that a Ctrl-C closes it again
            begin(answer)

        return self._context.senders.ask(start)

    def close_abandoned(self) -> None:
        """Close the C++ producers of a producer that the caller does not get: its name would stay in use."""
        for answer in self.opened or ():
            answer.close_abandoned()

    def _direct(self) -> DirectSender:
        """Open a sender on the official path."""
        named, limit = self._named, None
        most, across = named["max_pending_messages"], named["max_pending_messages_across_partitions"]
        changed: Arguments = {"message_router": self._router}
        if (
            named["block_if_queue_full"] is True
            and all(isinstance(one, int) and one > 0 for one in (most, across))
            and (topics := self._partitions())
        ):
            # A send that waits for room in a partition's official queue during its close would wait forever.
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
            may_block_inside=limit is None and bool(named["block_if_queue_full"]),
            mixed_keys=mixed_key_check(named, self._context),
            timing=timing,
        )

    def _on_topic(self, topic: str, config: BatchingConfig) -> BatchingSender:
        """Open a sender that cuts its own batches, on a topic that is not partitioned or on one partition."""
        changed = {
            "topic": topic,
            "batching_enabled": False,
            "message_router": None,
            "max_pending_messages": 0,
            "block_if_queue_full": False,
            "lazy_start_partitioned_producers": False,
        }
        if self._deduplication:
            return self._deduplicating(topic, config, changed)
        handle = ProducerHandle(self._open_one(**changed))
        if self._named["chunking_enabled"]:
            return self._resending(handle, config, changed)
        numbers = SequenceCounter(int(handle.last_sequence_id()))
        return BatchingSender(handle, self._context, config, numbers)

    def _resending(self, handle: ProducerHandle, config: BatchingConfig, changed: Arguments) -> ResendingSender:
        """Open a sender whose chunked messages survive a lost connection."""
        name, first = self._named["producer_name"], int(handle.last_sequence_id())
        if name and first < 0 and self._named["initial_sequence_id"] is None:
            # Incomplete messages of a killed process are identified by the producer name and a sequence id, too.
            first = time.time_ns() // 1000

        def reopen(name: str | None, last: int) -> pulsar.Producer:
            return self._open_one(**changed, producer_name=name, initial_sequence_id=last)

        return ResendingSender(
            handle,
            self._context,
            config,
            SequenceCounter(first),
            reopen,
            named=bool(name),
            timeout=self._named["send_timeout_millis"] / 1000,
        )

    def _deduplicating(self, topic: str, config: BatchingConfig, changed: Arguments) -> DedupSender:
        """Open an effectively-once sender, if the sequence ids of its name are known."""
        named = self._named
        # The broker's last sequence id is read from a producer that was opened without an initial one.
        changed |= {"send_timeout_millis": 0, "initial_sequence_id": None}

        def open_as(name: str) -> pulsar.Producer:
            if self._context.cluster.number() != self._cluster:
                raise ProducerBroken(
                    f"The client is connected to another cluster than the producer {name} on {topic} was opened on; "
                    "sequence ids belong to one cluster. Nothing was sent there. Create the producer again.",
                    last_published=None,
                )
            return self._open_one(**changed, producer_name=name)

        opening = Opening(
            self._context.admin_api(),
            topic,
            named["producer_name"],
            open_as,
            initial=-1 if named["initial_sequence_id"] is None else named["initial_sequence_id"],
            group=config.bounds.messages if config.by_key else 0,
            max_pending=config.limit,
            chunked=named["chunking_enabled"],
            recall=self._recall,
        )
        official, sequence = opening.open()
        kind, timeout = ChunkedSender if named["chunking_enabled"] else DedupSender, named["send_timeout_millis"] / 1000
        return kind(ProducerHandle(official), self._context, config, opening, sequence, timeout, self._cluster)

    def _partitioned(self, topics: list[str]) -> PartitionedSender:
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
        )

    def _open_parts(self, topics: list[str], begin: int) -> list[BatchingSender]:
        """Open senders for the partitions from `begin` on, all of them or none."""
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
                close_quietly(part.handle.inner)
            raise
        return parts


def _has_own_sender(named: Arguments) -> bool:
    """Return whether the producer batches or chunks, with arguments that the official client accepts.

    On a non-persistent topic the official client ignores `chunking_enabled`.
    """
    batched, chunked = named["batching_enabled"], named["chunking_enabled"]
    return batched is not chunked and not _invalid_arguments(named)


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


def _invalid_arguments(named: Arguments) -> str:
    """Return the names of the arguments that the official client does not accept."""
    if odd := [name for name, kind in _TYPES.items() if not isinstance(named[name], kind)]:
        return ", ".join(odd)
    least = {"max_pending_messages": 0, "max_pending_messages_across_partitions": 0, "batching_max_publish_delay_ms": 0}
    if named["batching_enabled"]:
        least |= {"batching_max_messages": 2, "batching_max_allowed_size_in_bytes": 0}
    return ", ".join(name for name, lowest in least.items() if named[name] < lowest)
