"""The asyncio client, like `pulsar_ext.Client`."""

from __future__ import annotations

import asyncio
import re
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import cache, partial, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import pulsar
import pulsar.asyncio

from pulsar_ext._native.handles import AsyncClientHandle
from pulsar_ext._native.signatures import Arguments, binding, documented_by, own_arguments
from pulsar_ext._runtime.context import ClientContext
from pulsar_ext.client.client import Client as BlockingClient
from pulsar_ext.client.consumers import ConsumerEventListener
from pulsar_ext.dedup.opening import Recall
from pulsar_ext.ids.message_id import AnyMessageId
from pulsar_ext.intercept import (
    ConsumerChain,
    ConsumerInterceptor,
    ProducerChain,
    ProducerInterceptor,
    ReaderChain,
    ReaderInterceptor,
)
from pulsar_ext.key_shared.builders import ConsumerBuilder as BlockingConsumerBuilder
from pulsar_ext.key_shared.builders import ReaderBuilder as BlockingReaderBuilder
from pulsar_ext.key_shared.hash_ranges import RangesLike
from pulsar_ext.key_shared.hashing import KeyFormsMode
from pulsar_ext.message import Message
from pulsar_ext.process import Action
from pulsar_ext.produce.router import HashingScheme
from pulsar_ext.producer import Producer as BlockingProducer
from pulsar_ext.redelivery.schedule import Backoff
from pulsar_ext.request import Replying, in_same_namespace, replier_arguments
from pulsar_ext.schema.typed import T, TypedSchema

from ._executor import Closable, Executor, awaited, call_listener, forwarded, running_loop_bridge
from ._receiving import AsyncReceiving
from .consumer import Consumer
from .producer import Producer
from .reader import RangeReaderGroup, Reader, Reading, TableView
from .requests import Replier, Requester


class _LoopEvents:
    """Notifies the application's listener, whose methods may be async, in the loop, one event at a time."""

    def __init__(self, listener: ConsumerEventListener) -> None:
        self._listener, self._bridge = listener, running_loop_bridge()
        self._events: deque[tuple[str, int]] = deque()
        self._consumer: Consumer | None = None
        self._notifying: asyncio.Task[None] | None = None

    def became_active(self, _: object, partition: int, /) -> None:
        self._bridge.call_soon(self._add, "became_active", partition)

    def became_inactive(self, _: object, partition: int, /) -> None:
        self._bridge.call_soon(self._add, "became_inactive", partition)

    def attach(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._notify()

    def _add(self, method: str, partition: int) -> None:
        self._events.append((method, partition))
        self._notify()

    def _notify(self) -> None:
        if self._consumer is not None and self._events and (self._notifying is None or self._notifying.done()):
            self._notifying = asyncio.create_task(self._notify_all())  # an eager task may be done already

    async def _notify_all(self) -> None:
        while self._events:
            method, partition = self._events.popleft()
            call = partial(self._report, method, partition)
            await call_listener(call, "A listener raised; the event was %s of partition %d", method, partition)

    def _report(self, method: str, partition: int) -> object:
        return getattr(self._listener, method)(self._consumer, partition)


class _Intercepted(AsyncReceiving):
    """Calls interceptors with each delivered message, in the loop."""

    chain: ConsumerChain | ReaderChain

    async def _receive(self, timeout_millis: int | None) -> Message:
        return self.chain.before(self, await super()._receive(timeout_millis))

    async def _receive_many(self, max_messages: int, timeout_millis: int | None) -> list[Message]:
        return self._intercept_all(await super()._receive_many(max_messages, timeout_millis))

    async def batch_receive(self) -> list[Message]:
        return self._intercept_all(await super().batch_receive())  # type: ignore[misc]  # of a consumer

    def _intercept_all(self, messages: list[Message]) -> list[Message]:
        return [self.chain.before(self, message) for message in messages]

    def _end_receives_(self) -> None:
        super()._end_receives_()
        self.chain.close()


@cache
def _class_of(kind: Any) -> type[_Intercepted]:
    return type(f"Intercepted{kind.__name__}", (_Intercepted, kind), {"__module__": kind.__module__})


def intercept(receiving: Any, chain: ConsumerChain | ReaderChain) -> None:
    """Make an asyncio consumer or reader call interceptors from now on."""
    receiving.chain = chain
    chain.show(receiving)
    kind: Any = type(receiving)
    receiving.__class__ = _class_of(kind)


H = TypeVar("H", Consumer, Reader)
K = TypeVar("K")
P = ParamSpec("P")
R = TypeVar("R")


class _AwaitedBuilder:
    """Builder whose last method is a coroutine; precedes the blocking builder among the bases."""

    def __init__(
        self, context: ClientContext, schema: type | TypedSchema | None, open_as: Callable[..., Awaitable[Any]]
    ) -> None:
        super().__init__(context, schema)  # type: ignore[call-arg]  # of the blocking builder
        self._open_as = open_as

    async def _opened(
        self: Any, method: Callable[[Any], Any], kind: type[H], chains: type[ConsumerChain | ReaderChain], listener: str
    ) -> H:
        """Call the blocking builder's method; its chain is awaited, the option named `listener` called in the loop."""
        builder, called = self.without(listener)
        builder, interceptors = builder.without("interceptors")
        chain = chains.of(self._context, interceptors, awaited=True)
        opening = partial(method, builder.load_conf(interceptors=chain))
        opened: H = await self._open_as(opening, kind, chain, called)
        return opened


class ReaderBuilder(_AwaitedBuilder, BlockingReaderBuilder):
    """`pulsar_ext.ReaderBuilder` with a coroutine `create()`; made by `Client.new_reader()`."""

    async def create(self) -> Reader:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        """Open the reader; raises like the blocking one. Its listener is called in the loop."""
        return await self._opened(BlockingReaderBuilder.create, Reader, ReaderChain, "reader_listener")


class ConsumerBuilder(_AwaitedBuilder, BlockingConsumerBuilder):
    """`pulsar_ext.ConsumerBuilder` with a coroutine `subscribe()`; made by `Client.new_consumer()`."""

    async def subscribe(self) -> Consumer:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        """Subscribe as the blocking builder does, with every slot checked; the listener is called in the loop."""
        self.check_listener_action(listens=self.without("message_listener")[1] is not None)
        return await self._opened(BlockingConsumerBuilder.subscribe, Consumer, ConsumerChain, "message_listener")


def _arguments_of(make: Callable[P, object]) -> Callable[[Callable[..., None]], Callable[Concatenate[Client, P], None]]:
    """Return a decorator of a constructor that takes the arguments of a class."""
    return wraps(make.__init__)


def _opening(
    method: Callable[Concatenate[BlockingClient, P], R], kind: Callable[[R, Executor], K]
) -> Callable[Concatenate[Client, P], Coroutine[object, None, K]]:
    """Return the coroutine method that calls the blocking method, and makes its twin of the result."""

    @wraps(method)
    async def open_one(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> K:
        opening = partial(method, self.blocking, *args, **kwargs)
        return kind(await self._executor.open(opening), self._executor)

    return open_one


class Client(Closable, AsyncClientHandle):
    """A `pulsar.asyncio.Client` that opens the producers, consumers and readers of `pulsar_ext.asyncio`.

    It takes the arguments of `pulsar_ext.Client`, which it wraps as `blocking`.
    """

    stats = awaited(BlockingClient.stats)
    resolve_message_id = awaited(BlockingClient.resolve_message_id)
    message_id_after = awaited(BlockingClient.message_id_after)
    message_id_by_index = awaited(BlockingClient.message_id_by_index)
    skip_messages = awaited(BlockingClient.skip_messages)
    acknowledge = awaited(BlockingClient.acknowledge)
    diagnose = awaited(BlockingClient.diagnose)
    look = awaited(BlockingClient.look)
    create_reader_group = _opening(BlockingClient.create_reader_group, RangeReaderGroup)
    read = _opening(BlockingClient.read, Reading)
    requester = _opening(BlockingClient.requester, Requester)
    get_service_info = forwarded(BlockingClient.get_service_info)

    @_arguments_of(BlockingClient)
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.blocking = blocking = BlockingClient(*args, **kwargs)
        super().__init__(blocking)
        self._patience = blocking.context.operation_timeout_seconds
        self._executor = Executor()
        self._receiving: weakref.WeakSet[Consumer | Reader] = weakref.WeakSet()
        self._producers: weakref.WeakSet[Producer] = weakref.WeakSet()

    async def create_table_view(
        self, topic: str, subscription_name: str | None = None, schema: type[T] | TypedSchema[T] | None = None
    ) -> TableView[T]:
        """Create a table view; see `pulsar_ext.Client.create_table_view`."""
        opening = partial(self.blocking.create_table_view, topic, subscription_name, schema)
        return TableView(await self._executor.open(opening), self._executor)

    @documented_by(pulsar.asyncio.Client.create_producer)
    async def create_producer(
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
        batching_enabled: bool = True,
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
        """Create a producer with the official arguments, and those of `pulsar_ext.Client.create_producer`."""
        given = own_arguments(locals())
        given["interceptors"] = chain = ProducerChain.of(self.blocking.context, interceptors)
        capacity: int | None = None

        def open_producer() -> BlockingProducer:
            nonlocal capacity
            capacity = self._capacity(given)
            return self.blocking.create_producer(**given)

        producer = Producer(await self._executor.open(open_producer), self._executor, capacity, patience=self._patience)
        if chain is not None:
            chain.show(producer)
        self._producers.add(producer)
        return producer

    @documented_by(pulsar.asyncio.Client.subscribe)
    async def subscribe(
        self,
        topic: str | list[str] | re.Pattern[str],
        subscription_name: str,
        consumer_type: binding.ConsumerType = binding.ConsumerType.Exclusive,
        schema: type[T] | TypedSchema[T] | None = None,
        receiver_queue_size: int = 1_000,
        max_total_receiver_queue_size_across_partitions: int = 50_000,
        consumer_name: str | None = None,
        unacked_messages_timeout_ms: int | None = None,
        broker_consumer_stats_cache_time_ms: int = 30_000,
        negative_ack_redelivery_delay_ms: int = 60_000,
        is_read_compacted: bool = False,
        properties: dict[str, str] | None = None,
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
        is_pattern_topic: bool = False,
        *,
        message_listener: Callable[[Consumer[T], Message[T]], object] | None = None,
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
        pattern_auto_discovery_period: int = 60,
        letter_encryption_key: str | None = None,
        letter_crypto_key_reader: pulsar.CryptoKeyReader | None = None,
    ) -> Consumer[T]:
        """Subscribe with the official arguments, and those of `pulsar_ext.Client.subscribe`.

        A `message_listener` and a `consumer_event_listener` are called in the loop, with one message or event at a
        time, and awaited if they are async. Interceptors are called in the loop and not awaited.
        """
        given = own_arguments(locals(), "is_pattern_topic", "message_listener")
        if is_pattern_topic:
            if not isinstance(topic, str):
                raise ValueError("Argument 'topic' must be a string when 'is_pattern_topic' is True, got a list")
            given["topic"] = re.compile(topic)
        elif not isinstance(topic, str | list | re.Pattern):
            raise ValueError(  # the official client's error
                f"Argument 'topic' is expected to be of type 'str' or 'list', not '{type(topic).__name__}'"
            )
        given["interceptors"] = chain = ConsumerChain.of(self.blocking.context, interceptors, awaited=True)
        events = None if consumer_event_listener is None else _LoopEvents(consumer_event_listener)
        given["consumer_event_listener"] = events
        opening = partial(self.blocking.subscribe, **given)
        consumer = await self._open_as(opening, Consumer, chain, message_listener)
        if events is not None:
            events.attach(consumer)
        return consumer

    @documented_by(pulsar.asyncio.Client.create_reader)
    async def create_reader(
        self,
        topic: str | Sequence[str] | re.Pattern[str],
        start_message_id: AnyMessageId | Mapping[str, AnyMessageId],
        schema: type[T] | TypedSchema[T] | None = None,
        receiver_queue_size: int = 1_000,
        reader_name: str | None = None,
        subscription_role_prefix: str | None = None,
        is_read_compacted: bool = False,
        crypto_key_reader: pulsar.CryptoKeyReader | None = None,
        start_message_id_inclusive: bool = False,
        crypto_failure_action: binding.ConsumerCryptoFailureAction = binding.ConsumerCryptoFailureAction.FAIL,
        *,
        reader_listener: Callable[[Reader[T], Message[T]], object] | None = None,
        key_hash_ranges: RangesLike | None = None,
        key_forms: KeyFormsMode = "auto",
        interceptors: Sequence[ReaderInterceptor] | None = None,
        pattern_auto_discovery_period: int = 60,
    ) -> Reader[T]:
        """Create a reader with the official arguments, and those of `pulsar_ext.Client.create_reader`.

        A `reader_listener` is called in the loop with one message at a time, and awaited if it is async.
        """
        given = own_arguments(locals(), "reader_listener")
        given["interceptors"] = chain = ReaderChain.of(self.blocking.context, interceptors, awaited=True)
        return await self._open_as(partial(self.blocking.create_reader, **given), Reader, chain, reader_listener)

    def new_reader(self, schema: type | TypedSchema | None = None) -> ReaderBuilder:
        """Return a reader builder, like `pulsar_ext.Client.new_reader()`; its `create()` is a coroutine."""
        return ReaderBuilder(self.blocking.context, schema, self._open_as)

    def new_consumer(self, schema: type | TypedSchema | None = None) -> ConsumerBuilder:
        """Return a consumer builder, like `pulsar_ext.Client.new_consumer()`; its `subscribe()` is a coroutine."""
        return ConsumerBuilder(self.blocking.context, schema, self._open_as)

    async def replier(
        self,
        topic: str,
        handler: Callable[[Message], object],
        *,
        subscription_name: str = "repliers",
        on_error: Action | Callable[[Message, Exception], object] | None = None,
        may_reply_to: Callable[[str, str], bool] = in_same_namespace,
        schema: type | TypedSchema | None = None,
        reply_schema: type | TypedSchema | None = None,
        **consumer_options: object,
    ) -> Replier:
        """Open a replier with the arguments of `pulsar_ext.Client.replier`.

        Its handler may be async, and may return an asynchronous iterator of replies.
        """
        has_letters = bool(consumer_options.get("enable_retry"))
        replying = Replying(handler, subscription_name, on_error, may_reply_to, has_letters)
        receiving, sending = replier_arguments(topic, subscription_name, schema, reply_schema, consumer_options)
        consumer: Consumer = await self.subscribe(**receiving)
        return Replier(consumer, lambda reply_topic: self.create_producer(reply_topic, **sending), replying)

    async def get_topic_partitions(self, topic: str) -> list[str]:
        """Return the names of a topic's partitions, or its own name if it is not partitioned."""
        return await self._executor.ask(partial(self.blocking.get_topic_partitions, topic))

    async def close(self) -> None:
        """Persist sent messages, send acknowledgements, and close everything, also if cancelled or called again."""
        if self._executor.closed:
            return
        await asyncio.shield(asyncio.ensure_future(self._close()))

    async def _close(self) -> None:
        await asyncio.gather(*(producer._complete_queued_() for producer in self._producers))
        if not self._executor.closed:  # another close may have finished
            await self._executor.run(self.blocking.close)
            self._end_calls()

    def shutdown(self) -> None:
        """Release everything without waiting: messages are lost, and sends and receives raise `AlreadyClosed`."""
        self.blocking.shutdown()
        for producer in list(self._producers):
            producer._reject_queued_()
        self._end_calls()

    def _end_calls(self) -> None:
        """Make every receive, and every call that would block, raise `AlreadyClosed`."""
        for receiving in list(self._receiving):
            receiving._end_receives_()
        self._executor.close()

    async def _open_as(
        self,
        opening: Callable[[], Any],
        kind: type[H],
        chain: ConsumerChain | ReaderChain | None,
        listener: Callable[..., object] | None,
    ) -> H:
        """Open a blocking consumer or reader; return its asyncio counterpart with its interceptors and its listener."""
        receiving = kind(await self._executor.open(opening), self._executor)
        if chain is not None:
            intercept(receiving, chain)
        self._receiving.add(receiving)
        if listener is not None:
            receiving._start_listener_(listener)
        return receiving

    def _capacity(self, given: Arguments) -> int | None:
        """Return the number of pending messages up to which a send never blocks; None if no send ever blocks."""
        limit: int = given["max_pending_messages"]
        if not (given["block_if_queue_full"] or given["deduplication"]) or not limit:
            return None
        if given["chunking_enabled"]:
            return 0  # the number of chunks depends on a message's size
        partitions = len(self.blocking.get_topic_partitions(given["topic"]))
        across: int = given["max_pending_messages_across_partitions"]
        return max(0, min(limit, across // max(partitions, 1)) - 1)
