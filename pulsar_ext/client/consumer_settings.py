"""Settings of a consumer that the official client does not make: some it takes and ignores, others it does not know."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from pulsar_ext._native import threads
from pulsar_ext._native.consumer_settings import set_priority_level, set_subscription_properties
from pulsar_ext._native.event_listener import set_event_listener
from pulsar_ext._runtime.callbacks import guard_event
from pulsar_ext.errors import InvalidUse

__all__ = ["ActiveEvents", "ConsumerEventListener", "ConsumerSettings"]

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
