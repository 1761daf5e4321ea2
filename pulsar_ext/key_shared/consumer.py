"""Sticky Key_Shared consumers that detect messages of another consumer's slots; made by `Client.new_consumer()`.

The broker dispatches a batch to the consumer of the key of the batch's first message, so a batch with mixed keys brings
messages of other consumers' slots. Here each message of a batch is checked by its own key.

`KeySharedPolicy` configures how the slots are distributed. The official policy accepts `(5, 3)` and duplicates, which
the broker rejects only after it has made a durable subscription, and ignores ranges on a consumer of another type. Here
both raise before any request.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from functools import partial
from itertools import repeat
from threading import get_ident
from typing import Literal, Self

import pulsar

from pulsar_ext._native.messages import InnerMessage
from pulsar_ext._native.signatures import Arguments, binding, named_arguments
from pulsar_ext._runtime.context import ClientContext
from pulsar_ext.consumer import Consumer, Subscription
from pulsar_ext.errors import InvalidKeyHashRange, InvalidUse, MisroutedMessage
from pulsar_ext.ids.message_id import from_inner
from pulsar_ext.intercept import ConsumerChain
from pulsar_ext.message import Message
from pulsar_ext.receive.filter import FilteredSource

from .hash_ranges import KeyHashRange, KeyHashRanges, SlotFilter, as_ranges
from .hashing import KeyForms, KeyFormsMode


class KeySharedPolicy(pulsar.ConsumerKeySharedPolicy, pulsar.KeySharedPolicy):  # type: ignore[misc]  # untyped officially
    """Distribution of the slots; Java's `KeySharedPolicy`, accepted like an official `ConsumerKeySharedPolicy`.

    KeySharedPolicy.sticky_hash_range().ranges(KeyHashRange(0, 10000))
    KeySharedPolicy.auto_split_hash_range()
    """

    def __init__(self) -> None:
        pulsar.KeySharedPolicy.__init__(self)

    @classmethod
    def sticky_hash_range(cls) -> Self:
        """Return a policy with which each consumer has fixed slots; set them with `ranges()`."""
        policy = cls()
        policy.set_key_shared_mode(pulsar.KeySharedMode.Sticky)
        return policy

    @classmethod
    def auto_split_hash_range(cls) -> Self:
        """Return a policy with which the broker distributes the slots among the connected consumers."""
        policy = cls()
        policy.set_key_shared_mode(pulsar.KeySharedMode.AutoSplit)
        return policy

    def ranges(self, *ranges: KeyHashRange | tuple[int, int] | str) -> Self:
        """Set the consumer's slots.

        Raises:
            InvalidKeyHashRange: the ranges are empty or overlap, or one is invalid.
            InvalidUse: the broker splits the slots itself.
        """
        if self.get_key_shared_mode() != pulsar.KeySharedMode.Sticky:
            raise InvalidUse("ranges() needs sticky_hash_range(); with auto_split_hash_range() the broker sets ranges.")
        self.set_sticky_ranges([(one.start, one.end) for one in as_ranges(ranges)])
        return self

    def policy(self) -> Self:
        """Return the native policy, which is this object."""
        return self

    @property
    def key_shared_mode(self) -> binding.KeySharedMode:
        """Mode of the distribution: sticky or auto-split."""
        mode: binding.KeySharedMode = self.get_key_shared_mode()
        return mode

    @property
    def allow_out_of_order_delivery(self) -> bool:
        """True if messages of a key may be delivered out of order when consumers connect or disconnect."""
        return bool(self.is_allow_out_of_order_delivery())

    @property
    def sticky_ranges(self) -> list[tuple[int, int]]:
        """The consumer's slots, as pairs of first and last slot."""
        return list(self.get_sticky_ranges())


def sticky_ranges_of(policy: pulsar.ConsumerKeySharedPolicy | None) -> KeyHashRanges | None:
    """Return the slots of a sticky policy, official or ours; None if the broker distributes them."""
    if policy is None or policy.key_shared_mode != pulsar.KeySharedMode.Sticky:
        return None
    if not policy.sticky_ranges:
        raise InvalidKeyHashRange("Ranges for KeyShared policy must not be empty: add .ranges(…) to the sticky policy.")
    return KeyHashRanges(policy.sticky_ranges)


def check_key_shared(policy: object, consumer_type: object) -> None:
    """Raise if ranges would be ignored, or rejected by the broker too late."""
    if not isinstance(policy, pulsar.ConsumerKeySharedPolicy):
        return
    if sticky_ranges_of(policy) is not None and consumer_type != pulsar.ConsumerType.KeyShared:
        raise InvalidUse(
            f"A consumer of type {getattr(consumer_type, 'name', consumer_type)} would ignore its key ranges: use "
            "consumer_type=ConsumerType.KeyShared, or read with client.create_reader(key_hash_ranges=…)."
        )


OnMisrouted = Literal["deliver", "raise"] | Callable[[Message], object]
"""Action for a message of another consumer's slot: deliver it, raise, or pass it to a function instead."""

_log = logging.getLogger("pulsar_ext.keys")


class MisroutedMessageWarning(UserWarning):
    """A consumer received a message of another consumer's slot, because producers send batches with mixed keys."""


class _OwnSlots(SlotFilter):
    """Filter for the consumer's own slots; an unbatched message passes, because the broker routed it by its key."""

    __slots__ = ()

    def _decide(self, inner: InnerMessage) -> bool:
        return inner.message_id().batch_index() < 0 or super()._decide(inner)


class RangeConsumer(Consumer):
    """A `Consumer` of the slots `key_hash_ranges` that counts messages of other slots in `misrouted`."""

    __slots__ = ("_filter", "_on_misrouted", "_own_slots", "key_hash_ranges", "misrouted")

    _screens_ = True  # Python checks each message before it is delivered to the application
    key_hash_ranges: KeyHashRanges
    misrouted: int
    _own_slots: SlotFilter
    _on_misrouted: OnMisrouted
    _filter: FilteredSource

    @classmethod
    def _assemble_with_slots_(
        cls, own_slots: SlotFilter, on_misrouted: OnMisrouted, official: pulsar.Consumer, subscription: Subscription
    ) -> Self:
        """Make a consumer of an official one, like `Consumer._assemble_()`; `own_slots` is the filter of own slots."""
        self = cls._assemble_(official, subscription)
        self.key_hash_ranges = own_slots.ranges
        self.misrouted = 0
        self._own_slots = own_slots
        self._on_misrouted = on_misrouted
        # Messages of a batch_receive() have not passed the source's filter before.
        self._filter = FilteredSource(self._source, lambda inner: self._is_wanted(inner) and self._wanted(inner))
        self._order.add_subscriber(self._filter)
        self._source = self._filter
        self._order.make_redelivery_filter = None
        return self

    def batch_receive(self) -> list[Message]:
        """Receive several messages at once, limited by the `batch_receive_policy`.

        After a Ctrl-C, the next call on this thread, or its next `receive_many()`, returns the interrupted messages.

        Raises:
            MisroutedMessage: the first message is of another slot, and `on_misrouted("raise")` was set. The next
                receive returns the messages after it.
        """
        thread, kept_by = get_ident(), self._interrupted.many
        if not (kept_by.get(thread) or any(self._filter.kept)):
            self._fetch(thread)
        kept = kept_by.setdefault(thread, [])
        if not kept:
            self._filter_into(kept)
        if self._recorder is not None:
            self._recorder.note([message.inner for message in kept])
        try:
            del kept_by[thread]
        except KeyError:  # a seek or a redelivery has discarded them
            return []
        return kept

    def _fetch(self, thread: int) -> None:
        """Receive a batch, and put it into the filter's queue."""
        batches = self._interrupted.batches
        while True:
            batch = self._receive_batch(thread)
            _, unseen = self._filter.kept
            if batches.get(thread) is batch:  # otherwise a seek on another thread has discarded it
                break
        unseen.extend(map(batch.pop, repeat(0, len(batch))))  # one step: after a Ctrl-C each message is in one list
        batches.pop(thread, None)

    def _filter_into(self, kept: list[Message]) -> None:
        """Filter the queued messages into `kept`; stop at an error, which is raised if `kept` is empty."""
        new = self._message_class
        message = new()
        try:
            for message.inner in iter(partial(self._filter.next_kept, kept), None):
                kept.append(message)
                message = new()
        except MisroutedMessage:
            if not kept:
                raise
            self.misrouted -= 1  # the next receive counts it again
        except Exception:
            if not kept:
                raise

    def _wanted(self, inner: InnerMessage) -> bool:
        if self._own_slots(inner):
            return True
        slot = self._own_slots.slot(inner)
        message = self._message_of_(inner)
        if callable(self._on_misrouted):
            self._on_misrouted(message)
            self.misrouted += 1
            return False
        self.misrouted += 1
        text = (
            f"Message {from_inner(inner.message_id()).to_text()} is in slot {slot}, which is not among this consumer's "
            f"({self.key_hash_ranges}): it came in a batch with mixed keys. Producers for Key_Shared consumers need "
            "batching_type=BatchingType.KeyBased, or no batching."
        )
        if self._on_misrouted == "raise":
            error = MisroutedMessage(text, slot=slot, message_id=from_inner(inner.message_id()).to_text())
            error.misrouted = message
            raise error
        if self.misrouted == 1:
            warnings.warn(f"{text} It is delivered.", MisroutedMessageWarning, stacklevel=4)
        return True


def check_on_misrouted(on_misrouted: OnMisrouted, *, listens: bool) -> None:
    """Raise if an action for misrouted messages is impossible."""
    if on_misrouted not in ("deliver", "raise") and not callable(on_misrouted):
        raise InvalidUse(f"on_misrouted must be 'deliver', 'raise' or a function of the message, got {on_misrouted!r}.")
    if on_misrouted == "raise" and listens:
        raise InvalidUse("on_misrouted('raise') is unsupported with a listener; pass a function of the message.")


def open_range_consumer(
    context: ClientContext,
    options: Arguments,
    ranges: KeyHashRanges,
    on_misrouted: OnMisrouted,
    key_forms: KeyFormsMode,
) -> Consumer:
    """Subscribe with `options`, the arguments of `Client.subscribe`, and check each message's slot."""
    listener = options.get("message_listener")
    check_on_misrouted(on_misrouted, listens=listener is not None)
    chain = ConsumerChain.of(context, options.pop("interceptors", None))
    if listener is not None:
        own_slots = _OwnSlots(ranges, KeyForms(context.admin_api, key_forms))
        if chain is not None:
            listener = chain.listening(listener)  # after the filter
        options = {
            **options,
            "message_listener": _filtering_listener(listener, own_slots, on_misrouted),
            "interceptors": chain,
        }
        listening: Consumer = context.opener.subscribe(**options)
        return listening
    return open_filtering_consumer(context, options, ranges, on_misrouted, key_forms, chain=chain)


def open_filtering_consumer(
    context: ClientContext,
    options: Arguments,
    ranges: KeyHashRanges,
    on_misrouted: OnMisrouted,
    key_forms: KeyFormsMode,
    *,
    assemble: Callable[..., RangeConsumer] = RangeConsumer._assemble_with_slots_,
    chain: ConsumerChain | None = None,
) -> RangeConsumer:
    """Subscribe with `options`, without a listener, and check each message's slot before it is delivered."""
    own_slots = _OwnSlots(ranges, KeyForms(context.admin_api, key_forms))
    context.callbacks.raise_inside("subscribe")
    opener = context.opener
    consumer: RangeConsumer = opener._subscribe_(
        named_arguments(type(opener).subscribe, (), options),
        make=partial(assemble, own_slots, on_misrouted),
        screens_first=True,
        chain=chain,
    )
    return consumer


def _filtering_listener(
    listener: Callable[[Consumer, Message], object], own_slots: SlotFilter, on_misrouted: OnMisrouted
) -> Callable[[Consumer, Message], None]:
    warned = False

    def listen(consumer: Consumer, message: Message) -> None:
        nonlocal warned
        if own_slots(message.inner):
            listener(consumer, message)
        elif callable(on_misrouted):
            on_misrouted(message)
        else:
            if not warned:
                warned = True
                _log.warning("A listener received a message of another consumer's slot, from a batch with mixed keys.")
            listener(consumer, message)

    return listen
