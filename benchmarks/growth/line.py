"""Lines that are measured at several sizes, and the parameters of each run."""

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
    "wait_until_acknowledged",
]

BOTH: Final = ("pulsar", "pulsar_ext")
OURS: Final = ("pulsar_ext",)
QUIET: Final = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
BROKER: Final = Profile(
    "growth",
    "a Shared subscription may have any number of unacknowledged messages",
    {"maxUnackedMessagesPerConsumer": "0", "maxUnackedMessagesPerSubscription": "0"},
)
_OPERATION_SECONDS: Final = 120
_HANDLES_A_TOPIC: Final = 100
_FIRST_WAIT, _LONGEST_WAIT = 0.005, 0.25
"""Intervals in seconds between two checks of the cursor, like those of `flush_acks`."""


class Watch:
    """Stopwatch that adds up the seconds of measured blocks: `with watch: …`."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.requests: int | None = None
        """Number of requests to the admin API, for a line that counts them."""
        self._began = 0.0

    def __enter__(self) -> Self:
        self._began = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds += time.perf_counter() - self._began


@dataclass(frozen=True)
class Bench:
    """Parameters of a run.

    Args:
        url: the broker's; empty for a line that needs no broker.
        admin_url: of its admin API.
        topic: a topic of this size; topics created for it have names with this prefix.
        size: the number of items, or the size of one.
        client: `pulsar` or `pulsar_ext`.
    """

    url: str
    admin_url: str
    topic: str
    size: int
    client: str = "pulsar"

    @property
    def is_ours(self) -> bool:
        """True if `pulsar_ext` is measured."""
        return self.client == "pulsar_ext"

    @property
    def lib(self) -> ModuleType:
        """Module of the client."""
        return pulsar_ext if self.is_ours else pulsar

    def for_client(self, client: str) -> Bench:
        """Return a copy for one of the clients."""
        return replace(self, client=client)

    @contextlib.contextmanager
    def open(self, admin: Any = None) -> Iterator[Any]:
        """Open a client.

        Args:
            admin: the admin API of our client, by default at `admin_url`.
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
    """Operation whose cost is measured at several sizes.

    Args:
        name: of the operation.
        unit: of the size.
        sizes: all sizes, ascending.
        quick: fewer and smaller ones.
        run: runs it once; only its blocks inside `with watch:` count as time.
        prepare: prepares the topic, once for each size.
        clients: the clients that support it.
        profile: of its broker; None without a broker.
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
    """Return the name of a new topic."""
    return f"persistent://public/default/growth-{uuid.uuid4().hex[:8]}"


def topics_for(bench: Bench) -> Iterator[str]:
    """Yield a topic for each of the consumers or producers; a hundred of them share one."""
    for number in count():
        yield from repeat(f"{bench.topic}-{number}", _HANDLES_A_TOPIC)


def fill_entries(bench: Bench, messages: int, size: int = 1) -> None:
    """Send `messages` messages of `size` bytes to the topic, each as an entry."""
    with bench.open() as client:
        producer = client.create_producer(bench.topic, block_if_queue_full=True, max_pending_messages=5000)
        payload = b"x" * size
        for _ in repeat(None, messages):
            producer.send_async(payload, None)
        producer.flush()


def keep_all(bench: Bench) -> None:
    """Create a subscription for which the topic keeps its messages, even if others acknowledge them."""
    with bench.admin() as admin:
        admin.create_topic(bench.topic)
        admin.create_subscription(bench.topic, "keeps", "earliest")


def wait_until_acknowledged(bench: Bench, topic: str, subscription: str, message: Any) -> None:
    """Wait until the cursor shows an acknowledgement, which the official client leaves to its user."""
    sought = message.message_id()
    position, wait = Position(sought.ledger_id(), sought.entry_id()), _FIRST_WAIT
    with bench.admin() as admin:
        while not admin.internal_stats(topic).cursors[subscription].acknowledges(position):
            time.sleep(wait)
            wait = min(2 * wait, _LONGEST_WAIT)
