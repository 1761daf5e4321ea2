"""What is measured at several sizes, and what each run of it gets."""

from __future__ import annotations

import contextlib
import time
import uuid
from dataclasses import dataclass, replace
from itertools import count, repeat
from typing import TYPE_CHECKING, Any, Final, Self

import pulsar

import pulsar_ext
from pulsar_ext.ids.position import Position
from pulsar_ext.testing import Profile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

__all__ = [
    "BOTH",
    "BROKER",
    "OURS",
    "QUIET",
    "Bench",
    "Line",
    "Watch",
    "fill_entries",
    "keep_all",
    "new_topic",
    "topics_for",
    "wait_until_shown",
]

BOTH: Final = ("pulsar", "pulsar_ext")
OURS: Final = ("pulsar_ext",)
QUIET: Final = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
BROKER: Final = Profile(
    "growth",
    "a Shared subscription may have any number of messages that are not acknowledged",
    {"maxUnackedMessagesPerConsumer": "0", "maxUnackedMessagesPerSubscription": "0"},
)
_OPERATION_SECONDS: Final = 120
_HANDLES_A_TOPIC: Final = 100
_FIRST_WAIT, _LONGEST_WAIT = 0.005, 0.25
"""As long as `flush_acks` waits between two looks at the cursor, in seconds."""


class Watch:
    """Adds up the seconds of the blocks that are measured: `with watch: …`."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.requests: int | None = None
        """How many requests to the admin API, for a line that counts them."""
        self._began = 0.0

    def __enter__(self) -> Self:
        self._began = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds += time.perf_counter() - self._began


@dataclass(frozen=True)
class Bench:
    """What a run gets.

    Args:
        url: the broker's, empty for a line that needs none.
        admin_url: of its admin API.
        topic: a topic of this size's own; what is made for it has names that begin like it.
        size: how many, or how large.
        client: `pulsar` or `pulsar_ext`.
    """

    url: str
    admin_url: str
    topic: str
    size: int
    client: str = "pulsar"

    @property
    def is_ours(self) -> bool:
        """Whether `pulsar_ext` is measured."""
        return self.client == "pulsar_ext"

    @property
    def lib(self) -> ModuleType:
        """The module of the client."""
        return pulsar_ext if self.is_ours else pulsar

    def sided(self, client: str) -> Bench:
        """Give the same for one of the clients."""
        return replace(self, client=client)

    @contextlib.contextmanager
    def open(self, admin: Any = None) -> Iterator[Any]:
        """Open a client.

        Args:
            admin: the admin API of ours, by default at `admin_url`.
        """
        options = {"admin": admin or self.admin_url} if self.is_ours else {}
        client = self.lib.Client(self.url, logger=QUIET, operation_timeout_seconds=_OPERATION_SECONDS, **options)
        try:
            yield client
        finally:
            client.close()

    def admin(self) -> pulsar_ext.PulsarAdmin:
        """Open the admin API."""
        return pulsar_ext.PulsarAdmin(self.admin_url)


@dataclass(frozen=True)
class Line:
    """One thing whose cost is measured at several sizes.

    Args:
        name: what is measured.
        unit: what the size counts.
        sizes: all of them, ascending.
        quick: fewer and smaller ones.
        run: does it once; only what it does inside `with watch:` counts as time.
        prepare: makes, once for each size, what the runs find.
        clients: who can do it.
        profile: of the broker that it needs; None if it needs none.
        far: a size that is computed from the number of requests.
    """

    name: str
    unit: str
    sizes: tuple[int, ...]
    quick: tuple[int, ...]
    run: Callable[[Bench, Watch], object]
    prepare: Callable[[Bench], object] | None = None
    clients: tuple[str, ...] = BOTH
    profile: Profile | None = BROKER
    far: int | None = None


def new_topic() -> str:
    """Name a topic that nobody has."""
    return f"persistent://public/default/growth-{uuid.uuid4().hex[:8]}"


def topics_for(bench: Bench) -> Iterator[str]:
    """Give a topic for each of so many consumers or producers; a hundred of them share one."""
    for number in count():
        yield from repeat(f"{bench.topic}-{number}", _HANDLES_A_TOPIC)


def fill_entries(bench: Bench, messages: int, size: int = 1) -> None:
    """Send so many messages of `size` bytes to the topic, each an entry of its own."""
    with bench.open() as client:
        producer = client.create_producer(bench.topic, block_if_queue_full=True, max_pending_messages=5000)
        payload = b"x" * size
        for _ in repeat(None, messages):
            producer.send_async(payload, None)
        producer.flush()


def keep_all(bench: Bench) -> None:
    """Make a subscription for which the topic keeps its messages, however often they are acknowledged on others."""
    with bench.admin() as admin:
        admin.create_topic(bench.topic)
        admin.create_subscription(bench.topic, "keeps", "earliest")


def wait_until_shown(bench: Bench, topic: str, subscription: str, message: Any) -> None:
    """Wait until the cursor shows an acknowledgement: what the official client leaves to its user."""
    sought = message.message_id()
    position, wait = Position(sought.ledger_id(), sought.entry_id()), _FIRST_WAIT
    with bench.admin() as admin:
        while not admin.internal_stats(topic).cursors[subscription].acknowledges(position):
            time.sleep(wait)
            wait = min(2 * wait, _LONGEST_WAIT)
