"""Opening of consumers, readers and table views with the official arguments, from their parts."""

from __future__ import annotations

import contextlib
import sys
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from operator import call
from typing import Any, Final, Protocol

import pulsar

from pulsar_ext._native import threads
from pulsar_ext._native.consumer_settings import (
    set_event_listener,
    set_priority_level,
    set_subscription_properties,
)
from pulsar_ext._native.handles import listener_reader
from pulsar_ext._native.messages import inner_message_of
from pulsar_ext._native.seek_gate import SeekGate
from pulsar_ext._native.signatures import Arguments, binding, named_arguments
from pulsar_ext._runtime.callbacks import guard_event, guard_listener, weak_listener
from pulsar_ext._runtime.context import ClientContext
from pulsar_ext.ack.acknowledger import Acknowledger
from pulsar_ext.ack.delivery import AckGrouping
from pulsar_ext.chunks.leftovers import ends_in_incomplete_message
from pulsar_ext.consumer import Consumer, Subscription
from pulsar_ext.errors import AdminError, InvalidUse
from pulsar_ext.ids.message_id import MessageId
from pulsar_ext.intercept import ConsumerChain, ReaderChain, intercept_consumer, intercept_reader, register_chain
from pulsar_ext.key_shared.consumer import check_key_shared
from pulsar_ext.message import Message, at_cluster, message_class
from pulsar_ext.reader import Reader
from pulsar_ext.receive.compacted import CompactionFilter
from pulsar_ext.receive.native import ConsumerReopener, ReaderReopener
from pulsar_ext.receive.order import ReceiveOrder
from pulsar_ext.receive.prefetch import prefetch_size
from pulsar_ext.receive.undecryptable import (
    Flow,
    PermitWatch,
    raise_on_encrypted_chunks,
    tolerates_decryption_failure,
    unique_name,
)
from pulsar_ext.redelivery.stranded import LeftoverWatch, StrandedWatch
from pulsar_ext.redelivery.tracker import RedeliveryOptions, configure_redelivery
from pulsar_ext.schema.auto_consume import AutoConsumeSchema
from pulsar_ext.schema.key_value import KeyValueSchema
from pulsar_ext.table_view import End, TableView

_Make = Callable[[pulsar.Consumer, Subscription], Consumer]


_MAX_INT: Final = 2**31 - 1


class ConsumerEventListener(Protocol):
    """Listener for changes of a Failover subscription's active consumer, as Java's `ConsumerEventListener`.

    The partition is -1 on a topic that is not partitioned; on several topics it is a partition's index of one of them.
    """

    def became_active(self, consumer: Any, partition: int, /) -> object:
        """Note that the consumer gets the messages of a partition from now on."""
        ...

    def became_inactive(self, consumer: Any, partition: int, /) -> object:
        """Note that another consumer gets the messages of a partition from now on."""
        ...


class ActiveEvents:
    """Notifies a listener of each change, one after the other; a new C++ consumer repeats the last state."""

    def __init__(self, listener: ConsumerEventListener) -> None:
        methods = (getattr(listener, name, None) for name in ("became_active", "became_inactive"))
        if isinstance(listener, type) or not all(map(callable, methods)):
            raise InvalidUse(
                "consumer_event_listener must be an object with the methods became_active and became_inactive, got "
                f"{listener!r}. Nothing was opened."
            )
        self._listener = listener
        self._events: deque[tuple[int, bool]] = deque()
        self._known: dict[int, bool] = {}
        self._notifying = threads.Lock()
        self._consumer: weakref.ref[Consumer] | None = None

    def attach(self, consumer: Consumer) -> None:
        """Set the consumer to report, and report the events that arrived before."""
        self._consumer = weakref.ref(consumer)
        self._notify()

    def on_active(self, partition: int, active: bool) -> None:
        """Add an event of a partition, on a thread of the C++ client."""
        self._events.append((partition, active))
        self._notify()

    def _notify(self) -> None:
        while self._events and self._consumer is not None and self._notifying.acquire(blocking=False):
            try:
                partition, active = self._events.popleft()
                consumer = self._consumer()
                if consumer is not None and self._known.get(partition) is not active:
                    self._known[partition] = active
                    notify = self._listener.became_active if active else self._listener.became_inactive
                    guard_event(notify, consumer, partition)
            finally:
                self._notifying.release()


def consumer_settings(
    given: Arguments,
) -> tuple[Callable[[binding.ConsumerConfiguration], None], ActiveEvents | None]:
    """Return a function that applies the settings which the official client ignores or lacks, and the listener."""
    discovery_seconds, priority_level = given["pattern_auto_discovery_period"], given.get("priority_level", 0)
    properties, listener = given.get("subscription_properties"), given.get("consumer_event_listener")
    events = None if listener is None else ActiveEvents(listener)
    for name, value, least in (
        ("pattern_auto_discovery_period", discovery_seconds, 1),
        ("priority_level", priority_level, 0),
    ):
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _MAX_INT:
            raise InvalidUse(f"{name} must be an int from {least} to {_MAX_INT}, got {value!r}. Nothing was opened.")
    if properties and not (
        isinstance(properties, Mapping) and all(isinstance(text, str) for pair in properties.items() for text in pair)
    ):
        raise InvalidUse(
            f"subscription_properties must be a dict of str to str, got {properties!r}. Nothing was opened."
        )

    def configure(configuration: binding.ConsumerConfiguration) -> None:
        configuration.pattern_auto_discovery_period(discovery_seconds)  # the official client ignores the argument
        if priority_level:
            set_priority_level(configuration, priority_level)
        if properties:
            set_subscription_properties(configuration, properties)
        if events is not None:
            set_event_listener(configuration, events)

    return configure, events


_SHARED_TYPES = (pulsar.ConsumerType.Shared, pulsar.ConsumerType.KeyShared)


def open_consumer(
    context: ClientContext,
    subscribe: Callable[..., pulsar.Consumer],
    named: Arguments,
    opened: list[pulsar.Consumer],
    *,
    make: _Make = Consumer._assemble_,
    screens_first: bool = False,
    gate: SeekGate,
    ack_group_time_ms: int | None,
    max_ack_group_size: int | None,
    redelivery: RedeliveryOptions,
    chain: ConsumerChain | None = None,
    events: ActiveEvents | None,
) -> None:
    """Open a consumer; change the arguments that this library takes over.

    `opened` gets the official consumer, which must not be used, and then ours. It is a list, because a Ctrl-C may
    arrive before a returned value is stored.
    """
    grouping = check_consumer(named, ack_group_time_ms, max_ack_group_size)
    raise_on_encrypted_chunks(context, named)
    listener = named["message_listener"]
    make_listening: _Make = Consumer._assemble_
    if chain is not None:
        make, make_listening = _intercepting(make, chain), _intercepting(make_listening, chain)
        if listener:
            listener = chain.listening(listener)
        redelivery = _with_ack_timeout(redelivery, chain, named)
    subscription = _make_parts(context, named, grouping, gate, redelivery, screens_first=screens_first)
    cluster = subscription.order.cluster = context.cluster.number()
    subscription.message_class = at_cluster(subscription.message_class, cluster)
    native_listener = None
    if listener:
        if subscription.flow is not None:
            listener = subscription.flow.handling(listener)
        native_listener = _Listener(listener, subscription, make_listening)
        named["message_listener"] = weak_listener(native_listener)
    began = time.monotonic()
    opened += map(call, (partial(subscribe, **named),))
    (official,) = opened
    consumer = make(official, subscription)
    named["consumer_name"] = official.consumer_name() or named["consumer_name"]
    reopener = ConsumerReopener(consumer, subscribe, named, context, gate=gate, acks=subscription.acks)
    consumer._set_reopener_(reopener, cluster)
    consumer._listen_(native_listener)
    subscription.acks.attach(consumer.inner, began)
    screens_ahead = subscription.queued and not listener
    subscription.redelivery.attach(consumer.inner, consumer._screened_ if screens_ahead else None)
    _start_monitors(context, subscription, named)
    if subscription.flow is not None:
        permits = PermitWatch(context, subscription.order, subscription.flow, named["topic"], named["consumer_name"])
        subscription.order.add_subscriber(permits)
        permits.begin()
    if native_listener is not None:
        native_listener.consumers[consumer.topic()] = weakref.ref(consumer)
    if chain is not None:
        subscription.redelivery.on_redeliver = chain.redelivers
        if subscription.redelivery.dead_letters is not None:
            subscription.redelivery.dead_letters.on_acknowledged = chain.dead_lettered
        chain.show(consumer)
        register_chain(context, chain, named["topic"])
    if events is not None:
        events.attach(consumer)
    opened += (consumer,)


def check_consumer(named: Arguments, ack_group_time_ms: int | None, max_ack_group_size: int | None) -> AckGrouping:
    """Validate arguments that the official client does not, and return the grouping of acknowledgements (pure)."""
    policy, listener = named["dead_letter_policy"], named["message_listener"]
    if policy is not None and not isinstance(policy, pulsar.ConsumerDeadLetterPolicy):
        raise InvalidUse(
            f"dead_letter_policy must be a ConsumerDeadLetterPolicy(…) or None, got {policy!r}. Nothing was opened."
        )
    if listener is not None and not callable(listener):
        raise InvalidUse(f"message_listener must be a function or None, got {listener!r}. Nothing was opened.")
    check_key_shared(named["key_shared_policy"], named["consumer_type"])
    return AckGrouping.of(ack_group_time_ms, max_ack_group_size, is_shared=named["consumer_type"] in _SHARED_TYPES)


def _intercepting(make: _Make, chain: ConsumerChain) -> _Make:
    return lambda official, subscription: intercept_consumer(make(official, subscription), chain)


def _with_ack_timeout(redelivery: RedeliveryOptions, chain: ConsumerChain, named: Arguments) -> RedeliveryOptions:
    """Enable this library's acknowledgement timeout if an interceptor needs it: the C++ client does not report it."""
    if (
        chain.overrides("on_ack_timeout_send")
        and named["unacked_messages_timeout_ms"]
        and redelivery.ack_timeout_redelivery_backoff is None
    ):
        return replace(redelivery, ack_timeout_redelivery_backoff=lambda _: 0)
    return redelivery


def _start_monitors(context: ClientContext, subscription: Subscription, named: Arguments) -> None:
    """Start the monitors of incomplete chunked messages and of undelivered messages."""
    order, acks = subscription.order, subscription.acks
    leftovers = LeftoverWatch(context, order, named["topic"], named["subscription_name"], acks)
    leftovers.max_pending_chunked = named["max_pending_chunked_message"]
    leftovers.redeliver = subscription.redelivery.redeliver_entries
    acks.collector.chunks_begin = leftovers.begin
    leftovers.begin()
    watch = partial(StrandedWatch, context, order, named["topic"], named["subscription_name"], acks, leftovers)
    if named["consumer_type"] == pulsar.ConsumerType.Shared:
        stranded = watch()
        order.add_subscriber(leftovers, stranded)
        stranded.begin()
    elif not subscription.is_shared and not named["is_read_compacted"]:  # compaction removes entries
        order.add_subscriber(leftovers, watch(only=named["consumer_name"]))
    else:
        order.add_subscriber(leftovers)


def _make_parts(
    context: ClientContext,
    named: Arguments,
    grouping: AckGrouping,
    gate: SeekGate,
    options: RedeliveryOptions,
    *,
    screens_first: bool,
) -> Subscription:
    """Make the parts of a consumer, and change the official arguments that they take over."""
    is_shared = named["consumer_type"] in _SHARED_TYPES
    retry = options.retry_topics(named, is_shared=is_shared)
    topic, queued = named["topic"], named["receiver_queue_size"] != 0
    flow = Flow(listens=bool(named["message_listener"])) if queued and tolerates_decryption_failure(named) else None
    if flow is not None and not named["consumer_name"]:
        named["consumer_name"] = unique_name()
    order = ReceiveOrder()
    several = 1 if isinstance(topic, str) else len(topic) if isinstance(topic, list) else sys.maxsize
    acks = Acknowledger(
        context,
        order,
        gate,
        topic,
        named["subscription_name"],
        grouping=grouping,
        is_shared=is_shared,
        keeps_indexes=bool(named["batch_index_ack_enabled"]),
        queue_size=max(named["receiver_queue_size"], 1),
        max_queued=named["max_total_receiver_queue_size_across_partitions"] * several,
    )
    # This library decides which messages of a batch are acknowledged; the C++ client must let all of them pass.
    named["batch_index_ack_enabled"] = True
    redelivery = configure_redelivery(context, named, acks, order, options, retry, is_shared=is_shared)
    if named["is_read_compacted"]:
        redelivery.compaction = CompactionFilter(context.admin_api)
        order.add_subscriber(redelivery.compaction)
    order.add_subscriber(redelivery, acks)
    return Subscription(
        context=context,
        order=order,
        gate=gate,
        acks=acks,
        redelivery=redelivery,
        message_class=message_class(named["schema"], several_topics=not isinstance(topic, str)),
        topics=topic,
        is_shared=is_shared,
        listens=bool(named["message_listener"]),
        queued=queued,
        fetches=prefetch_size(named, screens=screens_first or redelivery.screens or flow is not None),
        flow=flow,
    )


class _Listener:
    def __init__(
        self, listener: Callable[[Consumer, Message], object], subscription: Subscription, make: _Make
    ) -> None:
        self._listener, self._subscription, self._make = listener, subscription, make
        self.consumers: dict[str, weakref.ref[Consumer]] = {}
        """The consumers by topic: the C++ consumer keeps the listener, which must not keep them."""

    def __call__(self, official: pulsar.Consumer, message: pulsar.Message) -> None:
        """Deliver one message, on a thread of the C++ client."""
        subscription = self._subscription
        inner = inner_message_of(message)
        if (reopener := subscription.order.reopener) is not None:
            reopener.wait_for_move()
        if subscription.acks.closed or (reopener is not None and reopener.is_excluded(inner)):
            return
        if subscription.redelivery.screens:
            if not subscription.redelivery.screen(inner):
                return
        elif subscription.acks.is_redelivered_duplicate(inner):
            return
        topic = official.topic()
        known = self.consumers.get(topic)
        consumer = None if known is None else known()
        if consumer is None or consumer._cluster_ != subscription.order.cluster:
            # Of several topics: the C++ consumer of this topic only.
            consumer = self._of_topic(official, topic)
        if (received := consumer._listened_(message)) is not None:
            guard_listener(self._listener, consumer, received)

    def _of_topic(self, official: pulsar.Consumer, topic: str) -> Consumer:
        subscription = self._subscription
        order = ReceiveOrder()
        order.add_subscriber(subscription.redelivery, subscription.acks)
        order.cluster = subscription.order.cluster
        messages = at_cluster(subscription.message_class, order.cluster)
        changed = replace(subscription, order=order, topics=topic, fetches=0, message_class=messages)
        return self._make(official, changed)


def open_reader(
    context: ClientContext,
    create: Callable[..., pulsar.Reader],
    named: Arguments,
    opened: list[pulsar.Reader],
    make: Callable[..., Reader] = Reader._assemble_,
    chain: ReaderChain | None = None,
    *,
    several_topics: bool = False,
    skips_removed: bool = True,
    name: str | None = None,
) -> None:
    """Open a reader; see `open_consumer()`. Its permits are monitored if its `name` on the broker is passed."""
    raise_on_encrypted_chunks(context, named)
    topic, listener = named["topic"], named["reader_listener"]
    compaction = CompactionFilter(context.admin_api) if named["is_read_compacted"] and skips_removed else None
    if isinstance(topic, str):
        named["start_message_id"] = context.resolver.start_of(topic, named["start_message_id"]).inner
    cluster = context.cluster.number()
    messages = at_cluster(message_class(named["schema"], several_topics=several_topics), cluster)
    queued = named["receiver_queue_size"] != 0
    flow = None if name is None or not queued else Flow(listens=bool(listener))
    native_listener = None
    if chain is not None and listener:
        listener = chain.listening(listener)
    if listener:
        native_listener = _ReaderListener(
            listener if flow is None else flow.handling(listener), context, messages, topic, compaction
        )
        named["reader_listener"] = weak_listener(native_listener)
    opened += map(call, (partial(create, **named),))
    (official,) = opened
    reader = make(official, context, messages, topic, queued=queued, compaction=compaction, flow=flow)
    reopener = ReaderReopener(reader, create, named, context)
    reader._set_reopener_(reopener, cluster)
    if flow is not None and name is not None:
        reader._monitor_permits_(flow, name, reopener.move_before)
    reader._listen_(native_listener)
    if native_listener is not None:
        native_listener.reader = weakref.ref(reader)
    if chain is not None:
        if not chain.awaited:
            intercept_reader(reader, chain)
        chain.show(reader)
        register_chain(context, chain, topic)
    opened += (reader,)


def open_table_view(
    context: ClientContext, create: Callable[..., pulsar.Reader], named: Arguments, opened: list[pulsar.Reader]
) -> None:
    """Open a table view, which first reads the whole topic; `opened` gets both readers, and then the view."""
    topic, name, schema = named["topic"], named["subscription_name"], named["schema"]
    if isinstance(schema, KeyValueSchema | AutoConsumeSchema):
        raise InvalidUse(f"A table view does not support a {type(schema).__name__}. Nothing was opened.")
    reading = {"schema": schema, "subscription_role_prefix": name, "is_read_compacted": True}
    open_reader(
        context,
        create,
        named_arguments(pulsar.Client.create_reader, (topic, MessageId.earliest), reading),
        opened,
        skips_removed=False,  # a view drops messages without a key
    )
    ends_incomplete = partial(ends_in_incomplete_message, context.admin_api, topic)
    reader, end = opened[1], End()

    def find_end() -> None:
        # Without an end, the view reads until no message is left.
        with contextlib.suppress(AdminError, pulsar.PulsarException):
            end.find(reader.get_last_message_ids())

    context.inquiries.run(find_end)  # in the background, because the admin API may not answer
    opened += (TableView._assemble_(reader, topic, name, schema, ends_incomplete, end),)


class _ReaderListener:
    def __init__(
        self,
        listener: Callable[[Reader, Message], object],
        context: ClientContext,
        messages: type[Message],
        topic: str,
        compaction: CompactionFilter | None,
    ) -> None:
        self._listener, self._context, self._messages, self._topic = listener, context, messages, topic
        self._compaction = compaction
        self.reader: weakref.ref[Reader] | None = None
        """Weak, because the C++ reader keeps the listener."""

    def __call__(self, official: pulsar.Consumer, message: pulsar.Message) -> None:
        """Deliver one message, on a thread of the C++ client."""
        if self._compaction is not None and not self._compaction(inner_message_of(message)):
            return
        reader = None if self.reader is None else self.reader()
        if reader is None:  # create_reader has not returned yet
            reader = Reader._assemble_(listener_reader(official), self._context, self._messages, self._topic)
        if (received := reader._listened_(message)) is not None:
            guard_listener(self._listener, reader, received)
