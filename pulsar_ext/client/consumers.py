"""Opening consumers: what the official arguments mean here, and the parts that a consumer is made of.

`ConsumerSettings` are those that the official client does not make: some it takes and ignores, others it does not know.
"""

from __future__ import annotations

import time
import weakref
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from operator import call
from typing import TYPE_CHECKING, Any, Final, Protocol

import pulsar

from pulsar_ext._native import threads
from pulsar_ext._native.consumer_settings import set_priority_level, set_subscription_properties
from pulsar_ext._native.core import IS_USED
from pulsar_ext._native.event_listener import set_event_listener
from pulsar_ext._native.messages import inner_message_of
from pulsar_ext._runtime.callbacks import guard_event, guard_listener, kept_weakly
from pulsar_ext.ack.acknowledger import Acknowledger
from pulsar_ext.ack.delivery import AckGrouping
from pulsar_ext.consumer import Consumer, Subscription
from pulsar_ext.errors import InvalidUse
from pulsar_ext.intercept.chain import look_after
from pulsar_ext.intercept.receivers import intercept_consumer
from pulsar_ext.key_shared.consumer import check_key_shared
from pulsar_ext.message import adopt_message, at_cluster, message_class
from pulsar_ext.receive.compacted import CompactionFilter
from pulsar_ext.receive.many import take_over_batches
from pulsar_ext.receive.native import ConsumerFoundation
from pulsar_ext.receive.order import ReceiveOrder
from pulsar_ext.receive.undecryptable import Flow, PermitWatch, goes_on, refuse_encrypted_chunks, unique_name
from pulsar_ext.redelivery.stranded import LeftoverWatch, StrandedWatch
from pulsar_ext.redelivery.tracker import RedeliveryOptions, take_over_redelivery

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulsar_ext._native.seek_gate import SeekGate
    from pulsar_ext._runtime.context import ClientContext
    from pulsar_ext.intercept.chain import ConsumerChain


_MOST: Final = 2**31 - 1


class ConsumerEventListener(Protocol):
    """Hears whether a consumer of a Failover subscription is the active one; mirrors Java's of that name.

    The partition is -1 on a topic without partitions; on several topics it is the number of a partition of one of them.
    """

    def became_active(self, consumer: Any, partition: int, /) -> object:
        """Hear that the consumer gets the messages of a partition from now on."""
        ...

    def became_inactive(self, consumer: Any, partition: int, /) -> object:
        """Hear that another consumer gets them."""
        ...


class ActiveEvents:
    """Tells a listener of each change, one after the other, on a thread of the C++ client.

    A seek opens another C++ consumer, which hears again what is so already; that is no change.

    Args:
        listener: the application's.

    Raises:
        InvalidUse: it is a class, or lacks one of the two methods.
    """

    def __init__(self, listener: ConsumerEventListener) -> None:
        methods = (getattr(listener, name, None) for name in ("became_active", "became_inactive"))
        if isinstance(listener, type) or not all(map(callable, methods)):
            raise InvalidUse(
                "consumer_event_listener must be an object with the methods became_active and became_inactive, not "
                f"{listener!r}. Nothing was opened."
            )
        self._listener = listener
        self._events: deque[tuple[int, bool]] = deque()
        self._known: dict[int, bool] = {}
        self._telling = threads.Lock()
        self._consumer: weakref.ref[Any] | None = None

    def attach(self, consumer: Any) -> None:
        """Take the consumer that the listener is told of; the broker may have said something before it was there."""
        self._consumer = weakref.ref(consumer)
        self._tell()

    def hear(self, partition: int, active: bool) -> None:
        """Hear of a partition; on a thread of the C++ client."""
        self._events.append((partition, active))
        self._tell()

    def _tell(self) -> None:
        while self._events and self._consumer is not None and self._telling.acquire(blocking=False):
            try:
                self._tell_next()
            finally:
                self._telling.release()

    def _tell_next(self) -> None:
        partition, active = self._events.popleft()
        consumer = self._consumer and self._consumer()
        if consumer is not None and self._known.get(partition) is not active:
            self._known[partition] = active
            tell = self._listener.became_active if active else self._listener.became_inactive
            guard_event(tell, consumer, partition)


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """What a C++ consumer is given besides the official arguments.

    Args:
        discovery_seconds: after how many seconds a pattern looks for topics again.
        priority_level: 0 is the highest.
        subscription_properties: of the subscription, if this consumer makes it.
        events: what is told which consumer is active.

    Raises:
        InvalidUse: one of them is of another type, or out of range.
    """

    discovery_seconds: int
    priority_level: int = 0
    subscription_properties: Mapping[str, str] | None = None
    events: ActiveEvents | None = None

    def __post_init__(self) -> None:
        _check_number("pattern_auto_discovery_period", self.discovery_seconds, 1)
        _check_number("priority_level", self.priority_level, 0)
        properties = self.subscription_properties or {}
        is_dict = isinstance(properties, Mapping)
        if not is_dict or not all(isinstance(text, str) for pair in properties.items() for text in pair):
            raise InvalidUse(
                f"subscription_properties must be a dict of str to str, not {properties!r}. Nothing was opened."
            )

    def __call__(self, configuration: Any) -> None:
        """Give them to the configuration of a C++ consumer."""
        configuration.pattern_auto_discovery_period(self.discovery_seconds)  # the official client ignores it
        if self.priority_level:
            set_priority_level(configuration, self.priority_level)
        if self.subscription_properties:
            set_subscription_properties(configuration, self.subscription_properties)
        if self.events is not None:
            set_event_listener(configuration, self.events)


def _check_number(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _MOST:
        raise InvalidUse(f"{name} is an int from {least} to {_MOST}, not {value!r}. Nothing was opened.")


_OFFICIAL_REDELIVERY = RedeliveryOptions()
_SPLITTING = (pulsar.ConsumerType.Shared, pulsar.ConsumerType.KeyShared)


def open_consumer(
    context: ClientContext,
    subscribe: Callable[..., pulsar.Consumer],
    named: dict[str, Any],
    opened: list[Any],
    *,
    make: Callable[[pulsar.Consumer, Subscription], Consumer] = Consumer._assemble_,
    judges: bool = False,
    gate: SeekGate,
    ack_group_time_ms: int | None,
    max_ack_group_size: int | None,
    redelivery: RedeliveryOptions = _OFFICIAL_REDELIVERY,
    chain: ConsumerChain | None = None,
    settings: ConsumerSettings,
) -> None:
    """Open a consumer.

    Args:
        context: of the client.
        subscribe: the official `subscribe()`.
        named: its arguments by name; what is taken over here is changed in them.
        opened: where the official consumer goes, and then the one that is made of it; nobody uses the official one
            afterwards. A list, because a Ctrl-C comes before what a call returns is in any other place.
        make: makes a consumer of an official one and its parts.
        gate: what its C++ consumers are asked through.
        judges: whether that consumer looks at each message before the application does.
        ack_group_time_ms: see `Client.subscribe()`.
        max_ack_group_size: the same.
        redelivery: the same.
        chain: its interceptors.
        settings: what its C++ consumers are configured by.
    """
    grouping = check_consumer(named, ack_group_time_ms, max_ack_group_size)
    refuse_encrypted_chunks(context, named)
    listener = named["message_listener"]
    make_heard: Callable[[pulsar.Consumer, Subscription], Consumer] = Consumer._assemble_
    if chain is not None:
        make, make_heard = _intercepting(make, chain), _intercepting(make_heard, chain)
        if listener:
            listener = chain.listening(listener)
        redelivery = _telling_of_late(redelivery, chain, named)
    subscription = _take_over(context, named, grouping, gate, redelivery, judges=judges)
    heard = None
    if listener:
        if subscription.flow is not None:
            listener = subscription.flow.handling(listener)
        heard = _Listener(listener, subscription, make_heard)
        named["message_listener"] = kept_weakly(heard)
        context.calls_back = True
    cluster, began = context.cluster.number(), time.monotonic()
    opened += map(call, (partial(subscribe, **named),))
    (official,) = opened
    consumer = make(official, subscription)
    named["consumer_name"] = official.consumer_name() or named["consumer_name"]
    consumer._found_(
        ConsumerFoundation(
            consumer,
            subscribe,
            named,
            context,
            gate=subscription.gate,
            acks=subscription.acks,
        ),
        cluster,
    )
    consumer._listen_(heard)
    subscription.acks.attach(consumer.inner, began)
    looks_ahead = subscription.queued and not listener
    subscription.redelivery.attach(consumer.inner, consumer._screened_ if looks_ahead else None)
    _look_after(context, subscription, named)
    if subscription.flow is not None:
        permits = PermitWatch(context, subscription.order, subscription.flow, named["topic"], named["consumer_name"])
        subscription.order.take_part(permits)
        permits.begin()
    if heard is not None:
        heard.consumers[consumer.topic()] = weakref.ref(consumer)
    if chain is not None:
        subscription.redelivery.tell = chain.redelivers
        if subscription.redelivery.dead_letters is not None:
            subscription.redelivery.dead_letters.tell = chain.became_letter
        chain.show(consumer)
        look_after(context, chain, named["topic"])
    if settings.events is not None:
        settings.events.attach(consumer)
    opened += (consumer,)


def check_consumer(named: dict[str, Any], ack_group_time_ms: Any, max_ack_group_size: Any) -> AckGrouping:
    """Check what the official client takes of any kind, and return how acknowledgements are grouped (pure).

    Args:
        named: the official arguments by name.
        ack_group_time_ms: see `Client.subscribe()`.
        max_ack_group_size: see `Client.subscribe()`.

    Raises:
        InvalidUse: one of these is not valid.
    """
    policy, listener = named["dead_letter_policy"], named["message_listener"]
    if policy is not None and not isinstance(policy, pulsar.ConsumerDeadLetterPolicy):
        raise InvalidUse(
            f"dead_letter_policy must be a ConsumerDeadLetterPolicy(…) or None, not {policy!r}. Nothing was opened."
        )
    if listener is not None and not callable(listener):
        raise InvalidUse(f"message_listener must be a function or None, not {listener!r}. Nothing was opened.")
    check_key_shared(named["key_shared_policy"], named["consumer_type"])
    return AckGrouping.of(ack_group_time_ms, max_ack_group_size, splits=named["consumer_type"] in _SPLITTING)


def _intercepting(
    make: Callable[[pulsar.Consumer, Subscription], Consumer], chain: ConsumerChain
) -> Callable[[pulsar.Consumer, Subscription], Consumer]:
    """Have what makes a consumer make one that calls interceptors."""
    return lambda official, subscription: intercept_consumer(make(official, subscription), chain)


def _telling_of_late(redelivery: RedeliveryOptions, chain: ConsumerChain, named: dict[str, Any]) -> RedeliveryOptions:
    """Have what is late found here, where an interceptor wants to know of it: the C++ client says nothing."""
    if (
        chain.hears("on_ack_timeout_send")
        and named["unacked_messages_timeout_ms"]
        and redelivery.ack_timeout_redelivery_backoff is None
    ):
        return replace(redelivery, ack_timeout_redelivery_backoff=lambda _: 0)
    return redelivery


def _look_after(context: ClientContext, subscription: Subscription, named: dict[str, Any]) -> None:
    """Begin to look after chunks that nobody can receive, and after what nobody is given."""
    order, acks = subscription.order, subscription.acks
    leftovers = LeftoverWatch(context, order, named["topic"], named["subscription_name"], acks)
    leftovers.most_pending = named["max_pending_chunked_message"]
    leftovers.redeliver = subscription.redelivery.redeliver_entries
    order.take_part(leftovers)
    acks.collector.chunks_begin = leftovers.begin
    leftovers.begin()
    watch = partial(StrandedWatch, context, order, named["topic"], named["subscription_name"], acks, leftovers)
    if named["consumer_type"] == pulsar.ConsumerType.Shared:
        stranded = watch()
        order.take_part(stranded)
        stranded.begin()
    elif not subscription.splits and not named["is_read_compacted"]:  # of a compacted topic less comes than is there
        order.take_part(watch(only=named["consumer_name"]))


def _take_over(
    context: ClientContext,
    named: dict[str, Any],
    grouping: AckGrouping,
    gate: SeekGate,
    options: RedeliveryOptions,
    *,
    judges: bool,
) -> Subscription:
    """Make the parts of a consumer; what they take over of the official arguments is changed in these."""
    splits = named["consumer_type"] in _SPLITTING
    retry = options.retry_topics(named, splits=splits)
    topic, queued = named["topic"], named["receiver_queue_size"] != 0
    flow = Flow(listens=bool(named["message_listener"])) if queued and goes_on(named) else None
    if flow is not None and not named["consumer_name"]:
        named["consumer_name"] = unique_name()
    order = ReceiveOrder(numbers=not IS_USED and queued and not judges and not named["unacked_messages_timeout_ms"])
    acks = Acknowledger(
        context,
        order,
        gate,
        topic,
        named["subscription_name"],
        grouping=grouping,
        splits=splits,
        keeps_indexes=bool(named["batch_index_ack_enabled"]),
        queue_size=max(named["receiver_queue_size"], 1),
    )
    # What leaves is decided here, also which messages of a batch: the C++ client has to let all of it pass.
    named["batch_index_ack_enabled"] = True
    redelivery = take_over_redelivery(context, named, acks, order, options, retry, splits=splits)
    if named["is_read_compacted"]:
        redelivery.compaction = CompactionFilter(context.admin_api)
        order.take_part(redelivery.compaction)
    order.take_part(redelivery)
    order.take_part(acks)
    if redelivery.screens:
        order.number_no_more()
    return Subscription(
        context=context,
        order=order,
        gate=gate,
        acks=acks,
        redelivery=redelivery,
        message_class=message_class(named["schema"], several_topics=not isinstance(topic, str)),
        topics=topic,
        splits=splits,
        listens=bool(named["message_listener"]),
        queued=queued,
        fetches=take_over_batches(named, screens=judges or redelivery.screens or flow is not None),
        flow=flow,
    )


class _Listener:
    """Calls an application's listener.

    Args:
        listener: the application's.
        subscription: what its consumer is made of.
        make: makes a consumer, as `Consumer._assemble_()`.

    `consumers` has the consumer by topic, weakly: the C++ consumer keeps the listener, which must not keep that.
    """

    def __init__(
        self,
        listener: Callable[[Any, Any], object],
        subscription: Subscription,
        make: Callable[[pulsar.Consumer, Subscription], Consumer],
    ) -> None:
        self._listener, self._subscription, self._make = listener, subscription, make
        self.consumers: dict[str, weakref.ref[Consumer]] = {}

    def __call__(self, official: pulsar.Consumer, message: pulsar.Message) -> None:
        """Hear one message, on a thread of the C++ client."""
        subscription = self._subscription
        inner = inner_message_of(message)
        foundation = subscription.order.foundation
        if subscription.acks.closed or (foundation is not None and foundation.leaves_out(inner)):
            return
        if subscription.redelivery.screens:
            if not subscription.redelivery.screen(inner):
                return
        elif subscription.acks.came_again(inner):
            return
        topic = official.topic()
        known = self.consumers.get(topic)
        consumer = None if known is None else known()
        if consumer is None:  # one of several topics: the C++ consumer of that topic alone
            consumer = self._of_topic(official, topic)
        guard_listener(self._listener, consumer, adopt_message(message, consumer._message_class_))

    def _of_topic(self, official: pulsar.Consumer, topic: str) -> Consumer:
        subscription = self._subscription
        order = ReceiveOrder()
        order.take_part(subscription.redelivery)
        order.take_part(subscription.acks)
        order.cluster = subscription.order.cluster
        messages = at_cluster(subscription.message_class, order.cluster)
        changed = replace(subscription, order=order, topics=topic, fetches=0, message_class=messages)
        return self._make(official, changed)
