"""Sticky Key_Shared consumers that notice a message of another consumer's slots; made by `Client.new_consumer()`.

The broker gives a batch to the consumer whose ranges hold the key of the batch's first message, so a batch that mixes
keys brings messages of other consumers' slots. Here each message of a batch is judged by its own key.

`KeySharedPolicy` says how a subscription shares the slots. The official policy takes `(5, 3)` and duplicates, which the
broker refuses only after it made a durable subscription, and ignores ranges on a consumer of another type; here both
raise before anything is asked for.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from functools import partial
from itertools import repeat
from threading import get_ident
from typing import TYPE_CHECKING, Any, Literal, Self

import pulsar

from pulsar_ext._native.signatures import named_arguments
from pulsar_ext.consumer import Consumer
from pulsar_ext.errors import InvalidKeyHashRange, InvalidUse, MisroutedMessage
from pulsar_ext.ids.message_id import from_inner
from pulsar_ext.intercept.chain import ConsumerChain
from pulsar_ext.message import Message
from pulsar_ext.receive.filter import FilteredSource

from .hash_ranges import KeyHashRanges, SlotFilter, as_ranges
from .hashing import KeyForms

if TYPE_CHECKING:
    from pulsar_ext._runtime.context import ClientContext
    from pulsar_ext.consumer import Subscription

    from .hash_ranges import KeyHashRange
    from .hashing import KeyFormsMode


class KeySharedPolicy(pulsar.ConsumerKeySharedPolicy, pulsar.KeySharedPolicy):  # type: ignore[misc]  # untyped officially
    """How the slots are shared, in Java's words; goes wherever an official `ConsumerKeySharedPolicy` goes.

    KeySharedPolicy.sticky_hash_range().ranges(KeyHashRange(0, 10000))
    KeySharedPolicy.auto_split_hash_range()
    """

    def __init__(self) -> None:
        pulsar.KeySharedPolicy.__init__(self)

    @classmethod
    def sticky_hash_range(cls) -> Self:
        """Give each consumer the slots that it asks for; add them with `ranges()`."""
        policy = cls()
        policy.set_key_shared_mode(pulsar.KeySharedMode.Sticky)
        return policy

    @classmethod
    def auto_split_hash_range(cls) -> Self:
        """Have the broker share the slots among whatever consumers there are."""
        policy = cls()
        policy.set_key_shared_mode(pulsar.KeySharedMode.AutoSplit)
        return policy

    def ranges(self, *ranges: KeyHashRange | tuple[int, int] | str) -> Self:
        """Set the consumer's slots.

        Raises:
            InvalidKeyHashRange: there are no ranges, one is not valid, or two overlap.
            InvalidUse: the broker splits the slots itself.
        """
        if self.get_key_shared_mode() != pulsar.KeySharedMode.Sticky:
            raise InvalidUse("Ranges go with sticky_hash_range(): with auto_split_hash_range() the broker makes them.")
        self.set_sticky_ranges([(one.start, one.end) for one in as_ranges(ranges)])
        return self

    def policy(self) -> Self:
        """Give the C++ policy, which is this one."""
        return self

    @property
    def key_shared_mode(self) -> Any:
        """Whether the slots are shared sticky or by auto-split."""
        return self.get_key_shared_mode()

    @property
    def allow_out_of_order_delivery(self) -> bool:
        """Whether a key's messages may overtake each other when consumers come and go."""
        return bool(self.is_allow_out_of_order_delivery())

    @property
    def sticky_ranges(self) -> list[tuple[int, int]]:
        """The consumer's slots, pairs of first and last."""
        return list(self.get_sticky_ranges())


def sticky_ranges_of(policy: Any) -> KeyHashRanges | None:
    """Give the slots that a policy, official or ours, asks for; None if the broker shares them out.

    Raises:
        InvalidKeyHashRange: there are no ranges, one is not valid, or two overlap.
    """
    if policy is None or policy.key_shared_mode != pulsar.KeySharedMode.Sticky:
        return None
    if not policy.sticky_ranges:
        raise InvalidKeyHashRange("Ranges for KeyShared policy must not be empty: add .ranges(…) to the sticky policy.")
    return KeyHashRanges(policy.sticky_ranges)


def check_key_shared(policy: Any, consumer_type: Any) -> None:
    """Refuse what would be ignored, or refused by the broker too late.

    Raises:
        InvalidKeyHashRange: as `sticky_ranges_of`.
        InvalidUse: there are ranges, and the type of the consumer is not Key_Shared.
    """
    if not isinstance(policy, pulsar.ConsumerKeySharedPolicy):
        return
    if sticky_ranges_of(policy) is not None and consumer_type != pulsar.ConsumerType.KeyShared:
        raise InvalidUse(
            f"A consumer of type {getattr(consumer_type, 'name', consumer_type)} would ignore its key ranges: use "
            "consumer_type=ConsumerType.KeyShared, or read with client.create_reader(key_hash_ranges=…)."
        )


OnMisrouted = Literal["deliver", "raise"] | Callable[[Message], object]
"""What to do with a message of another consumer's slot: deliver it, raise, or give it to a function instead."""

_log = logging.getLogger("pulsar_ext.keys")


class MisroutedMessageWarning(UserWarning):
    """A consumer got a message of another consumer's slot, because producers send batches that mix keys."""


class _Judge(SlotFilter):
    """Whether a C++ message is the consumer's own; one that came alone is, for the broker chose by its key."""

    __slots__ = ()

    def _decide(self, inner: Any) -> bool:
        return inner.message_id().batch_index() < 0 or super()._decide(inner)


class RangeConsumer(Consumer):
    """A `Consumer` of some slots, `key_hash_ranges`, that counts messages of other slots in `misrouted`."""

    __slots__ = ("_filter", "_judge", "_on_misrouted", "key_hash_ranges", "misrouted")

    key_hash_ranges: KeyHashRanges
    misrouted: int
    _judge: SlotFilter
    _on_misrouted: OnMisrouted
    _filter: FilteredSource

    @classmethod
    def _assemble_judged_(
        cls, judge: SlotFilter, on_misrouted: OnMisrouted, official: pulsar.Consumer, subscription: Subscription
    ) -> Self:
        """Make a consumer of an official one, as `Consumer._assemble_()`; `judge` says which messages are its own."""
        self = cls._assemble_(official, subscription)
        self.key_hash_ranges = judge.ranges
        self.misrouted = 0
        self._judge = judge
        self._on_misrouted = on_misrouted
        # What comes in a batch was not looked at before.
        self._filter = FilteredSource(self._source, lambda inner: self._is_wanted(inner) and self._wanted(inner))
        self._order.take_part(self._filter)
        self._source = self._filter
        self._order.make_sieve = None
        return self

    @property
    def _judges_(self) -> bool:
        """Whether Python looks at each message before the application does: here it does."""
        return True

    def batch_receive(self) -> list[Message]:
        """Receive several messages at once, as many as the `batch_receive_policy` says.

        After a Ctrl-C the next call on the same thread, or its next `receive_many()`, returns what this one had.

        Raises:
            MisroutedMessage: the first of them is of another slot, and `on_misrouted("raise")` was chosen. What came
                after it waits for the next receive.
        """
        thread, kept_by = get_ident(), self._interrupted.many
        if not (kept_by.get(thread) or any(self._filter.kept)):
            self._fetch(thread)
        kept = kept_by.setdefault(thread, [])
        if not kept:
            self._judge_into(kept)
        if self._recorder is not None:
            self._recorder.note([message.inner for message in kept])
        try:
            del kept_by[thread]
        except KeyError:  # a seek or a redelivery has dropped it: it comes again, or is not what was sought
            return []
        return kept

    def _fetch(self, thread: int) -> None:
        """Receive a batch, and have it wait where the filter finds it."""
        batches = self._interrupted.batches
        while True:
            batch = self._receive_batch(thread)
            _, unseen = self._filter.kept
            if batches.get(thread) is batch:  # else a seek on another thread has dropped it
                break
        unseen.extend(map(batch.pop, repeat(0, len(batch))))  # in one step: a Ctrl-C finds each in one place
        batches.pop(thread, None)

    def _judge_into(self, kept: list[Message]) -> None:
        """Take what waits, up to an error about one of them, which is raised if it is the first."""
        new = self._message_class
        message = new()
        try:
            for message.inner in iter(partial(self._filter.next_kept, kept), None):
                kept.append(message)
                message = new()
        except MisroutedMessage:
            if not kept:
                raise
            self.misrouted -= 1  # it waits for the next receive, which counts it again
        except Exception:
            if not kept:
                raise

    def _wanted(self, inner: Any) -> bool:
        if self._judge(inner):
            return True
        slot = self._judge.slot(inner)
        message = self._message_of_(inner)
        if callable(self._on_misrouted):
            self._on_misrouted(message)
            self.misrouted += 1
            return False
        self.misrouted += 1
        text = (
            f"Message {from_inner(inner.message_id()).to_text()} is in slot {slot}, which is not among this consumer's "
            f"({self.key_hash_ranges}): it came in a batch that mixes keys. Producers for Key_Shared consumers need "
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
    """Refuse what cannot be done with a misrouted message.

    Raises:
        InvalidUse: it is neither "deliver", "raise" nor a function, or "raise" where a listener receives.
    """
    if on_misrouted not in ("deliver", "raise") and not callable(on_misrouted):
        raise InvalidUse(f"on_misrouted is 'deliver', 'raise' or a function of the message, not {on_misrouted!r}.")
    if on_misrouted == "raise" and listens:
        raise InvalidUse("A listener has no caller to raise to: give on_misrouted() a function of the message.")


def open_range_consumer(
    context: ClientContext,
    options: dict[str, Any],
    ranges: KeyHashRanges,
    on_misrouted: OnMisrouted,
    key_forms: KeyFormsMode,
) -> Consumer:
    """Subscribe with `options`, the arguments of `Client.subscribe`, and judge what comes.

    Raises:
        InvalidUse: as `check_on_misrouted`; nothing was opened.
    """
    listener = options.get("message_listener")
    check_on_misrouted(on_misrouted, listens=listener is not None)
    chain = ConsumerChain.of(context, options.pop("interceptors", None))
    if listener is not None:
        judge = _Judge(ranges, KeyForms(context.admin_api, key_forms))
        if chain is not None:
            listener = chain.listening(listener)  # behind the judge
        options = {**options, "message_listener": _judged(listener, judge, on_misrouted), "interceptors": chain}
        heard: Consumer = context.opener.subscribe(**options)
        return heard
    return open_judging_consumer(context, options, ranges, on_misrouted, key_forms, chain=chain)


def open_judging_consumer(
    context: ClientContext,
    options: dict[str, Any],
    ranges: KeyHashRanges,
    on_misrouted: OnMisrouted,
    key_forms: KeyFormsMode,
    *,
    assemble: Callable[..., RangeConsumer] = RangeConsumer._assemble_judged_,
    chain: ConsumerChain | None = None,
) -> RangeConsumer:
    """Subscribe with `options`, which name no listener, and judge each message before it is handed out.

    Args:
        context: of the client.
        options: the arguments of `Client.subscribe`.
        ranges: the consumer's own slots.
        on_misrouted: what becomes of a message of another slot.
        key_forms: how to tell what a key is; see `KeyForms`.
        assemble: makes the consumer, as `RangeConsumer._assemble_judged_()`.
        chain: its interceptors.
    """
    judge = _Judge(ranges, KeyForms(context.admin_api, key_forms))
    context.callbacks.refuse("subscribe")
    grouping = {name: options.get(name) for name in ("ack_group_time_ms", "max_ack_group_size")}
    rest = {name: value for name, value in options.items() if name not in grouping}
    consumer: RangeConsumer = context.opener._open_consumer_(
        named_arguments(pulsar.Client.subscribe, (), rest),
        make=partial(assemble, judge, on_misrouted),
        judges=True,
        chain=chain,
        **grouping,
    )
    return consumer


def _judged(
    listener: Callable[[Any, Any], object], judge: SlotFilter, on_misrouted: OnMisrouted
) -> Callable[[Any, Any], object]:
    warned = False

    def listen(consumer: Any, message: Message) -> None:
        nonlocal warned
        if judge(message.inner):
            listener(consumer, message)
        elif callable(on_misrouted):
            on_misrouted(message)
        else:
            if not warned:
                warned = True
                _log.warning("A listener got a message of another consumer's slot, from a batch that mixes keys.")
            listener(consumer, message)

    return listen
