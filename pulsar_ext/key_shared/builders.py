"""Builders of readers and consumers with key ranges: `client.new_reader()` and `client.new_consumer()`.

    client.new_reader().topic(t).start_message_id(id).key_hash_range(KeyHashRange(0, 10000)).create()

Mirrors Java's `ReaderBuilder` and `ConsumerBuilder`. Every method returns the builder. Nothing is opened, and nothing
is validated that needs a broker, before the last call.
"""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any, Self

import pulsar

from pulsar_ext._native.signatures import Arguments, binding
from pulsar_ext._runtime.context import ClientContext
from pulsar_ext.consumer import Consumer
from pulsar_ext.errors import AdminError, InvalidUse, SlotsNotCovered
from pulsar_ext.ids.message_id import AnyMessageId
from pulsar_ext.intercept import Interceptor
from pulsar_ext.message import Message
from pulsar_ext.reader import Reader
from pulsar_ext.schema.typed import TypedSchema

from .consumer import OnMisrouted, check_key_shared, check_on_misrouted, open_range_consumer, sticky_ranges_of
from .coverage import UncoveredSlotsWarning, had_subscription, wait_for_cover
from .hash_ranges import KeyHashRange, KeyHashRanges, as_ranges
from .hashing import KeyFormsMode


class _Builder:
    def __init__(self, context: ClientContext, schema: type | TypedSchema | None = None) -> None:
        self._context = context
        self._options: Arguments = {} if schema is None else {"schema": schema}

    def receiver_queue_size(self, size: int) -> Self:
        """Set the receiver queue size, in messages."""
        return self.load_conf(receiver_queue_size=size)

    def intercept(self, *interceptors: Interceptor) -> Self:
        """Add interceptors of the messages, in this order; see `Client.subscribe` and `Client.create_reader`."""
        return self.load_conf(interceptors=list(interceptors))

    def load_conf(self, **options: object) -> Self:
        """Set any arguments of `Client.subscribe` or `Client.create_reader` by name."""
        self._options = {**self._options, **options}  # not changed in place, because copies of the builder share it
        return self

    def without(self, name: str) -> tuple[Self, Any]:
        """Return a copy of this builder whose option of that name is None, and the original value; None if not set."""
        return copy(self).load_conf(**{name: None}), self._options.get(name)


class ReaderBuilder(_Builder):
    """Builder of a reader; made by `Client.new_reader()`."""

    def topic(self, topic: str) -> Self:
        """Set the topic, with or without partitions; it must exist if the reader has key ranges."""
        return self.load_conf(topic=topic)

    def topics(self, topics: Sequence[str] | re.Pattern[str]) -> Self:
        """Set several topics, or a pattern; `create()` then returns a `TopicsReader`."""
        return self.load_conf(topic=topics)

    def start_message_id(self, start_message_id: AnyMessageId | Mapping[str, AnyMessageId]) -> Self:
        """Set the start: any message id, `MessageId.earliest` or `MessageId.latest`."""
        return self.load_conf(start_message_id=start_message_id)

    def start_message_id_inclusive(self) -> Self:
        """Include the message of the start id."""
        return self.load_conf(start_message_id_inclusive=True)

    def key_hash_range(self, *ranges: KeyHashRange | tuple[int, int] | str) -> Self:
        """Read only messages whose own key slots are in these ranges.

        Raises:
            InvalidKeyHashRange: the ranges are empty or overlap, or one is invalid.
        """
        found: KeyHashRanges = as_ranges(ranges)
        return self.load_conf(key_hash_ranges=found)

    def key_forms(self, mode: KeyFormsMode) -> Self:
        """Set how to resolve ambiguous keys; see `KeyForms`."""
        return self.load_conf(key_forms=mode)

    def reader_name(self, name: str) -> Self:
        """Set the reader's name."""
        return self.load_conf(reader_name=name)

    def reader_listener(self, listener: Callable[[Any, Message], object]) -> Self:
        """Set a listener, which is called with the reader and each message."""
        return self.load_conf(reader_listener=listener)

    def read_compacted(self, read_compacted: bool = True) -> Self:
        """Read the compacted topic, with the last message of each key."""
        return self.load_conf(is_read_compacted=read_compacted)

    def create(self) -> Reader:
        """Open the reader.

        Raises:
            InvalidUse: the topic or the start is missing; nothing was opened.
            NoSuchTopic: the reader has key ranges and the topic does not exist; nothing was opened.
        """
        for name in ("topic", "start_message_id"):
            if name not in self._options:
                raise InvalidUse(f"{name} must be set on the reader builder: call .{name}(…) before .create().")
        reader: Reader = self._context.opener.create_reader(**self._options)
        return reader


class ConsumerBuilder(_Builder):
    """Builder of a consumer; made by `Client.new_consumer()`."""

    def __init__(self, context: ClientContext, schema: type | TypedSchema | None = None) -> None:
        super().__init__(context, schema)
        self._on_misrouted: OnMisrouted = "deliver"
        self._key_forms: KeyFormsMode = "auto"
        self._must_cover = False
        self._wait_seconds = 0.0

    def topic(self, *topics: str) -> Self:
        """Set one or several topics."""
        return self.load_conf(topic=topics[0] if len(topics) == 1 else list(topics))

    def subscription_name(self, name: str) -> Self:
        """Set the subscription's name."""
        return self.load_conf(subscription_name=name)

    def subscription_type(self, consumer_type: binding.ConsumerType) -> Self:
        """Set the type; the default is Key_Shared with a key-shared policy, otherwise Exclusive."""
        return self.load_conf(consumer_type=consumer_type)

    def subscription_initial_position(self, position: binding.InitialPosition) -> Self:
        """Set the start of a new subscription: `InitialPosition.Earliest` or `Latest`."""
        return self.load_conf(initial_position=position)

    def consumer_name(self, name: str) -> Self:
        """Set the consumer's name."""
        return self.load_conf(consumer_name=name)

    def message_listener(self, listener: Callable[[Any, Message], object]) -> Self:
        """Set a listener, which is called with the consumer and each message."""
        return self.load_conf(message_listener=listener)

    def key_shared_policy(self, policy: pulsar.ConsumerKeySharedPolicy) -> Self:
        """Set the distribution of the slots: a `KeySharedPolicy`, or the official `ConsumerKeySharedPolicy`."""
        return self.load_conf(key_shared_policy=policy)

    def require_full_cover(self, required: bool = True, *, wait_seconds: float = 0.0) -> Self:
        """Raise instead of warn if the subscription's consumers do not cover every slot exactly once.

        Args:
            required: False warns, which is the default without this call.
            wait_seconds: time to wait for the other consumers.
        """
        self._must_cover, self._wait_seconds = required, wait_seconds
        return self

    def on_misrouted(self, action: OnMisrouted) -> Self:
        """Set the action for a message of another consumer's slot, which can arrive in a batch with mixed keys.

        Args:
            action: "deliver" it, after one warning; "raise" `MisroutedMessage`, which has the message; or a function
                that is called with the message instead, to pass it to the right consumer and acknowledge it.
        """
        check_on_misrouted(action, listens=False)
        self._on_misrouted = action
        return self

    def key_forms(self, mode: KeyFormsMode) -> Self:
        """Set how to resolve ambiguous keys; see `KeyForms`."""
        self._key_forms = mode
        return self

    def subscribe(self) -> Consumer:
        """Subscribe, then check by the admin API that every slot has a consumer.

        Without an admin API the check is skipped, unless it is required.

        Raises:
            InvalidUse: the topic or the subscription's name is missing, or the type contradicts the policy; nothing
                was opened.
            InvalidKeyHashRange: the policy's ranges are invalid; nothing was opened.
            SlotsNotCovered: some slots do not have exactly one consumer and this is required. The consumer is closed,
                and a subscription that it made is deleted.
            pulsar.ConsumerAssignError: another consumer of the subscription has some of these slots.
        """
        options = dict(self._options)
        for name in ("topic", "subscription_name"):
            if name not in options:
                raise InvalidUse(f"{name} must be set on the consumer builder: call .{name}(…) before .subscribe().")
        policy = options.get("key_shared_policy")
        if policy is not None:
            options.setdefault("consumer_type", pulsar.ConsumerType.KeyShared)
        ranges = sticky_ranges_of(policy)
        check_key_shared(policy, options.get("consumer_type"))
        if ranges is None and not self._must_cover:
            return self._open(options, None)
        topics = [options["topic"]] if isinstance(options["topic"], str) else options["topic"]
        if not isinstance(topics, list):
            raise InvalidUse("The cover of a pattern's topics cannot be checked; pass the topics' names.")
        subscription = options["subscription_name"]
        made = self._must_cover and not any(
            had_subscription(self._context.admin_api(), topic, subscription) for topic in topics
        )
        consumer = self._open(options, ranges)
        try:
            self._check_cover(topics, subscription)
        except BaseException:
            consumer.close()
            for topic in topics if made else ():
                with contextlib.suppress(AdminError):
                    self._context.admin_api().delete_subscription(topic, subscription)
            raise
        return consumer

    def check_listener_action(self, *, listens: bool) -> None:
        """Raise `InvalidUse` for `on_misrouted("raise")` if a listener receives the messages of ranges."""
        if sticky_ranges_of(self._options.get("key_shared_policy")) is not None:
            check_on_misrouted(self._on_misrouted, listens=listens)

    def _open(self, options: Arguments, ranges: KeyHashRanges | None) -> Consumer:
        if ranges is not None:
            return open_range_consumer(self._context, options, ranges, self._on_misrouted, self._key_forms)
        consumer: Consumer = self._context.opener.subscribe(**options)
        return consumer

    def _check_cover(self, topics: list[str], subscription: str) -> None:
        admin = self._context.admin_api()
        try:
            wait_for_cover(admin, topics, subscription, self._wait_seconds if self._must_cover else 0.0)
        except (SlotsNotCovered, AdminError) as error:
            if self._must_cover:
                raise
            if isinstance(error, SlotsNotCovered):
                warnings.warn(str(error), UncoveredSlotsWarning, stacklevel=3)
