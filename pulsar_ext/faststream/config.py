"""Settings of a broker, its subscribers and its publishers, checked without a connection."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import pulsar
from faststream._internal import configs
from faststream._internal.constants import EMPTY
from faststream._internal.types import BrokerMiddleware
from faststream.exceptions import IncorrectState, SetupError
from faststream.middlewares import AckPolicy

import pulsar_ext
from pulsar_ext._native.interruptible import validate_arguments
from pulsar_ext._native.signatures import named_arguments
from pulsar_ext.asyncio import Client
from pulsar_ext.client.consumers import check_consumer, consumer_settings
from pulsar_ext.ids.topic_name import TopicName
from pulsar_ext.intercept import ConsumerChain, ProducerChain
from pulsar_ext.redelivery.tracker import RedeliveryOptions
from pulsar_ext.request import in_same_namespace

Options: TypeAlias = Mapping[str, Any]
"""Arguments of a method of the client, by name."""
Middlewares: TypeAlias = "Sequence[BrokerMiddleware[Any, Any]]"
"""Middlewares of a broker or a router."""


@dataclass(frozen=True, slots=True)
class Topics:
    """Topics as they were declared."""

    declared: str | Sequence[str] | re.Pattern[str]

    def __post_init__(self) -> None:
        several = isinstance(self.declared, list | tuple) and all(isinstance(one, str) for one in self.declared)
        if not self.declared or not (several or isinstance(self.declared, str | re.Pattern)):
            raise SetupError(
                "A subscriber's topic must be a name, a list of names, or a pattern of `re.compile`, "
                f"not {self.declared!r}."
            )

    @property
    def is_pattern(self) -> bool:
        """True if it is a pattern."""
        return isinstance(self.declared, re.Pattern)

    def with_prefix(self, prefix: str) -> str | list[str] | re.Pattern[str]:
        """Return the topics to subscribe to, with a prefix before each name."""
        if isinstance(self.declared, str):
            return prefix + self.declared
        if isinstance(self.declared, re.Pattern):
            namespace, slash, name = prefix.rpartition("/")  # the namespace is not a pattern, and the name is text
            name = re.sub(r"[^\w-]", r"\\\g<0>", name)
            pattern = self.declared.pattern
            if prefix and "|" in pattern:
                pattern = f"(?:{pattern})"  # the prefix applies to each branch
            return re.compile(f"{namespace}{slash}{name}{pattern}", self.declared.flags)
        return [prefix + one for one in self.declared]

    def each(self, prefix: str) -> list[str]:
        """Return each name, or the text of the pattern."""
        topics = self.with_prefix(prefix)
        if isinstance(topics, re.Pattern):
            return [topics.pattern]
        return [topics] if isinstance(topics, str) else topics

    def include(self, topic: str, prefix: str) -> bool:
        """Return true if a topic, by its short or full name, is one of them."""
        topics, name = self.with_prefix(prefix), TopicName.parse(topic)
        if isinstance(topics, re.Pattern):
            full = str(name)
            return any(topics.fullmatch(one) for one in (full, full.partition("://")[2]))  # it may omit the domain
        return any(TopicName.parse(one) == name for one in self.each(prefix))


def full_topic(topic: str) -> str:
    """Return the full name of a topic; empty for an empty name, for which a publish raises."""
    return str(TopicName.parse(topic)) if topic else topic


@dataclass(kw_only=True)
class PulsarBrokerConfig(configs.BrokerConfig):
    """Settings of a broker or a router."""

    may_reply_to: Callable[[str, str], bool] = in_same_namespace
    opened: Client | None = field(default=None, init=False, repr=False)

    @property
    def client(self) -> Client:
        """Client of a connected broker."""
        if self.opened is None:
            raise IncorrectState("The broker is not connected: call `await broker.connect()` or `start()` first.")
        return self.opened


@dataclass(kw_only=True)
class PulsarSubscriberConfig(configs.SubscriberUsecaseConfig, configs.SubscriberSpecificationConfig):
    """Settings of a subscriber, and of its specification."""

    _outer_config: PulsarBrokerConfig  # pyright: ignore[reportIncompatibleVariableOverride]  # as FastStream's
    topics: Topics
    subscription: str
    subscription_type: pulsar.ConsumerType
    max_workers: int
    max_records: int | None
    """Maximum number of messages in a handler's list; None for a handler of single messages."""
    options: Options

    @property
    def ack_policy(self) -> AckPolicy:
        """Policy of the subscriber, its router or its broker; by default failed messages are redelivered."""
        for policy in (self._ack_policy, self._outer_config.ack_policy):
            if policy is not EMPTY:
                return policy
        return AckPolicy.NACK_ON_ERROR


@dataclass(kw_only=True)
class PulsarPublisherConfig(configs.PublisherUsecaseConfig, configs.PublisherSpecificationConfig):
    """Settings of a publisher, and of its specification."""

    _outer_config: PulsarBrokerConfig  # pyright: ignore[reportIncompatibleVariableOverride]  # as FastStream's
    topic: str
    key: str | None
    headers: Mapping[str, str]
    reply_to: str
    options: Options | None

    @property
    def prefixed_topic(self) -> str:
        """Topic with its router's prefix."""
        return f"{self._outer_config.prefix}{self.topic}"


_OTHER_NAMES: Final = {
    "schema": "FastStream decodes the body: pass a codec or a decoder",
    "message_listener": "decorate a handler",
    "consumer_type": "it is called subscription_type here",
    "subscription_name": "it is called subscription here",
    "is_pattern_topic": "pass the topic as a pattern of re.compile",
}
"""Arguments of `Client.subscribe()` that have another form here."""

_OFFICIAL: Final = frozenset(inspect.signature(pulsar.Client.subscribe).parameters)
_PLAIN: Final = {"schema": pulsar.schema.BytesSchema(), "batching_enabled": False}
_REDELIVERY: Final = tuple(field.name for field in dataclasses.fields(RedeliveryOptions))


def check_ack_policy(policy: object) -> None:
    """Check a policy; FastStream compares policies by identity, and would ignore their names."""
    if policy is not EMPTY and not isinstance(policy, AckPolicy):
        raise SetupError(f"ack_policy must be an AckPolicy of faststream, such as AckPolicy.MANUAL, got {policy!r}.")


def check_client_options(options: Options) -> None:
    """Check the arguments that `PulsarBroker()` passes on to the client."""
    known = _check_names("PulsarBroker()", options, pulsar_ext.Client)
    for name, value in options.items():
        kind = type(known[name].default)
        if kind in (bool, int) and not isinstance(value, kind):
            raise SetupError(f"{name} of PulsarBroker() must be of type {kind.__name__}, got {value!r}.")


def check_consumer_options(
    topic: object, subscription: str, subscription_type: pulsar.ConsumerType, options: Options
) -> None:
    """Check the arguments that a subscriber passes on to `Client.subscribe()`, as that does before it connects."""
    for name in options:
        if name in _OTHER_NAMES:
            raise SetupError(f"subscriber() does not accept {name}: {_OTHER_NAMES[name]}.")
    _check_names("subscriber()", options, Client.subscribe)
    official = {name: value for name, value in options.items() if name in _OFFICIAL}
    given = {"subscription_name": subscription, "consumer_type": subscription_type, **official}
    with _as_setup_error("subscriber()"):
        named = named_arguments(pulsar.Client.subscribe, (topic,), {"schema": pulsar.schema.BytesSchema(), **given})
        consumer_settings({**options, "pattern_auto_discovery_period": named["pattern_auto_discovery_period"]})
        ConsumerChain(options.get("interceptors") or ())
        check_consumer(named, options.get("ack_group_time_ms"), options.get("max_ack_group_size"))
        redelivery = RedeliveryOptions(**{name: options[name] for name in _REDELIVERY if name in options})
        redelivery.retry_topics(named, is_shared=False)
        validate_arguments(pulsar.Client.subscribe, named)


def check_producer_options(options: Options | None) -> None:
    """Check `producer_options`, as `Client.create_producer()` does before it connects."""
    options = options or {}
    official = _check_names("producer_options", options, pulsar.Client.create_producer, Client.create_producer)
    with _as_setup_error("producer_options"):
        ProducerChain(options.get("interceptors") or ())
        given = {name: value for name, value in options.items() if name in official}
        named = named_arguments(pulsar.Client.create_producer, ("t",), {**_PLAIN, **given})
        validate_arguments(pulsar.Client.create_producer, named)


@contextlib.contextmanager
def _as_setup_error(where: str) -> Iterator[None]:
    try:
        yield
    except (pulsar.PulsarException, TypeError, ValueError) as error:
        raise SetupError(f"{where}: {error}") from error


def _check_names(
    where: str, options: Iterable[str], function: Callable[..., object], *others: Callable[..., object]
) -> dict[str, inspect.Parameter]:
    """Check that one of the functions accepts each option; return the parameters of the first."""
    every = [dict(inspect.signature(one).parameters) for one in (function, *others)]
    names = {name for one in every for name, parameter in one.items() if parameter.kind is not parameter.VAR_KEYWORD}
    for name in options:
        if name not in names - {"self", "topic"}:
            near = difflib.get_close_matches(name, names, 1)
            hint = f"; did you mean {near[0]}?" if near else "."
            raise SetupError(f"{where} has no argument {name}{hint}")
    return every[0]
