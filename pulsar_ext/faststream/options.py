"""Arguments of clients, consumers and producers, checked where they are declared: no broker is asked (pure)."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import inspect
from typing import TYPE_CHECKING, Any, Final

import pulsar
from faststream._internal.constants import EMPTY
from faststream.exceptions import SetupError
from faststream.middlewares import AckPolicy

import pulsar_ext
from pulsar_ext._native.asking import check_arguments
from pulsar_ext._native.signatures import named_arguments
from pulsar_ext.asyncio import Client
from pulsar_ext.client.consumer_settings import ActiveEvents, ConsumerSettings
from pulsar_ext.client.consumers import check_consumer
from pulsar_ext.intercept.chain import ConsumerChain, ProducerChain
from pulsar_ext.redelivery.tracker import RedeliveryOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

__all__ = ["check_ack_policy", "check_client_options", "check_consumer_options", "check_producer_options"]

_ELSEWHERE: Final = {
    "schema": "FastStream decodes the body: give a codec or a decoder",
    "message_listener": "decorate a handler",
    "consumer_type": "it is called subscription_type here",
    "subscription_name": "it is called subscription here",
    "is_pattern_topic": "give the topic as a pattern of re.compile",
}
"""Arguments of `Client.subscribe()` that are something else here."""

_OFFICIAL: Final = frozenset(inspect.signature(pulsar.Client.subscribe).parameters)
_PLAIN: Final = {"schema": pulsar.schema.BytesSchema(), "batching_enabled": False}
_REDELIVERY: Final = tuple(field.name for field in dataclasses.fields(RedeliveryOptions))


def check_ack_policy(policy: Any) -> None:
    """Check what becomes of messages; FastStream compares policies by identity, and would ignore their names.

    Raises:
        SetupError: it is no `AckPolicy`, and given.
    """
    if policy is not EMPTY and not isinstance(policy, AckPolicy):
        raise SetupError(f"ack_policy must be an AckPolicy of faststream, such as AckPolicy.MANUAL, got {policy!r}.")


def check_client_options(options: Mapping[str, Any]) -> None:
    """Check what `PulsarBroker()` passes on to the client.

    Raises:
        SetupError: there is no such argument, or its value is of another type than its default.
    """
    known = _check_names("PulsarBroker()", options, pulsar_ext.Client)
    for name, value in options.items():
        kind = type(known[name].default)
        if kind in (bool, int) and not isinstance(value, kind):
            raise SetupError(f"{name} of PulsarBroker() must be of type {kind.__name__}, got {value!r}.")


def check_consumer_options(topic: Any, subscription: str, subscription_type: Any, options: Mapping[str, Any]) -> None:
    """Check what a subscriber passes on to `Client.subscribe()`, as that does before it asks the broker.

    Raises:
        SetupError: there is no such argument, it is called something else here, or its value is not valid.
    """
    for name in options:
        if name in _ELSEWHERE:
            raise SetupError(f"subscriber() does not take {name}: {_ELSEWHERE[name]}.")
    _check_names("subscriber()", options, Client.subscribe)
    official = {name: value for name, value in options.items() if name in _OFFICIAL}
    given = {"subscription_name": subscription, "consumer_type": subscription_type, **official}
    with _as_setup_error("subscriber()"):
        named = named_arguments(pulsar.Client.subscribe, (topic,), {"schema": pulsar.schema.BytesSchema(), **given})
        listener = options.get("consumer_event_listener")
        ConsumerSettings(
            named["pattern_auto_discovery_period"],
            options.get("priority_level", 0),
            options.get("subscription_properties"),
            None if listener is None else ActiveEvents(listener),
        )
        ConsumerChain(options.get("interceptors") or ())
        check_consumer(named, options.get("ack_group_time_ms"), options.get("max_ack_group_size"))
        redelivery = RedeliveryOptions(**{name: options[name] for name in _REDELIVERY if name in options})
        redelivery.retry_topics(named, splits=False)
        check_arguments(pulsar.Client.subscribe, named)


def check_producer_options(options: Mapping[str, Any] | None) -> None:
    """Check `producer_options`, as `Client.create_producer()` does before it asks the broker.

    Raises:
        SetupError: there is no such argument, or its value is not valid.
    """
    options = options or {}
    official = _check_names("producer_options", options, pulsar.Client.create_producer, Client.create_producer)
    with _as_setup_error("producer_options"):
        ProducerChain(options.get("interceptors") or ())
        given = {name: value for name, value in options.items() if name in official}
        named = named_arguments(pulsar.Client.create_producer, ("t",), {**_PLAIN, **given})
        check_arguments(pulsar.Client.create_producer, named)


@contextlib.contextmanager
def _as_setup_error(where: str) -> Iterator[None]:
    try:
        yield
    except (pulsar.PulsarException, TypeError, ValueError) as error:
        raise SetupError(f"{where}: {error}") from error


def _check_names(
    where: str, options: Iterable[str], taker: Callable[..., Any], *others: Callable[..., Any]
) -> dict[str, inspect.Parameter]:
    """Check that one of the functions takes each option; return the parameters of the first."""
    every = [dict(inspect.signature(one).parameters) for one in (taker, *others)]
    names = {name for one in every for name, parameter in one.items() if parameter.kind is not parameter.VAR_KEYWORD}
    for name in options:
        if name not in names - {"self", "topic"}:
            near = difflib.get_close_matches(name, names, 1)
            hint = f"; did you mean {near[0]}?" if near else "."
            raise SetupError(f"{where} has no argument {name}{hint}")
    return every[0]
