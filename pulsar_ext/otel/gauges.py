"""What the consumers of instrumented clients have at the moment: looked at when metrics are collected."""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakSet

import pulsar
from opentelemetry.metrics import Observation, get_meter, get_meter_provider

from pulsar_ext._native.locks import Lock
from pulsar_ext.consumer import Consumer

from .instruments import DESTINATION, SUBSCRIPTION, SYSTEM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from opentelemetry.metrics import CallbackOptions, MeterProvider

    from pulsar_ext._runtime.context import ClientContext

__all__ = ["observe"]

_GAUGES: tuple[tuple[str, str, str, Callable[[Consumer], int]], ...] = (
    (
        "pulsar.client.consumer.ack.pending",
        "{acknowledgement}",
        "Acknowledgements that have not been sent: of entries, and of parts of batches.",
        Consumer.pending_acks,
    ),
    (
        "pulsar.client.consumer.fetched_ahead",
        "{message}",
        "Messages that were fetched out of the receiver queue before the application asks for them.",
        Consumer.fetched_ahead,
    ),
)


class _Global:
    """Stands for the global meter provider, whichever that is by then."""


_GLOBAL = _Global()
_lock = Lock()
_observed: WeakKeyDictionary[Any, WeakSet[ClientContext]] = WeakKeyDictionary()
"""By meter provider: of a second instrument of the same name the SDK would never ask the callback."""


def observe(context: ClientContext, meter_provider: MeterProvider | None) -> None:
    """Have a client's consumers be looked at from now on, for this provider alone, as long as there is the client.

    Args:
        context: of the client.
        meter_provider: where the metrics go; None for the global one.
    """
    is_global = meter_provider is None or meter_provider is get_meter_provider()
    provider = _GLOBAL if is_global else meter_provider
    with _lock:
        for others in _observed.values():
            others.discard(context)
        known = _observed.get(provider)
        contexts = _observed.setdefault(provider, WeakSet())
        contexts.add(context)
    if known is None:
        meter = get_meter("pulsar_ext", meter_provider=meter_provider)
        for name, unit, description, count in _GAUGES:
            meter.create_observable_up_down_counter(name, [_looking(contexts, count)], unit, description)


def _looking(
    contexts: WeakSet[ClientContext], count: Callable[[Consumer], int]
) -> Callable[[CallbackOptions], Iterator[Observation]]:
    def look(_: CallbackOptions) -> Iterator[Observation]:
        sums: Counter[tuple[str, str]] = Counter()
        for consumer in [one for context in list(contexts) for one in context.opener._received_by_()]:
            if isinstance(consumer, Consumer):
                with contextlib.suppress(pulsar.PulsarException):  # it is being closed
                    sums[consumer.subscribed_to(), consumer.subscription_name()] += count(consumer)
        for (topic, subscription), number in sums.items():
            yield Observation(number, {SYSTEM: "pulsar", DESTINATION: topic, SUBSCRIPTION: subscription})

    return look
