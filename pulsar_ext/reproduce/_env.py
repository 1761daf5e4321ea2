"""What the steps of a scenario find around them: the broker, topics of their own, and the ways to count.

The only thing here that depends on the client: `pulsar_ext` is given the URL of the admin API.
"""

from __future__ import annotations

import contextlib
import importlib
import threading
import uuid
from typing import TYPE_CHECKING, Any

import pulsar as official

from pulsar_ext.admin import PulsarAdmin
from pulsar_ext.chunks.leftovers import unacknowledged

from ._apart import Apart

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import ModuleType

    from pulsar_ext.testing import FaultProxy

    from ._apart import Outcome
    from ._place import Place

__all__ = ["END", "Env", "cut_amid", "label", "labels", "rebuilt", "send_batch"]

END = "end"
"""The label of the message that is sent last, so that its receiver knows that nothing more comes."""

_RECEIVE_MILLIS = 20_000
_SILENT_SECONDS = 1.0
_FEWEST_CHUNKS, _MOST_BYTES, _MOST_TOTAL_BYTES = 3, 24 << 20, 48 << 20
"""Of one message, and of many, where the broker's chunks are large: what a scenario sends fits into its time."""


class Env:
    """What `run(pulsar, env)` gets.

    Args:
        place: where the broker is.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self.admin = PulsarAdmin(place.admin_url, token=place.token)

    def close(self) -> None:
        """Close the admin API's connections."""
        self.admin.close()

    def topic(self) -> str:
        """Name a topic that is not in use."""
        return f"persistent://{self._place.namespace}/{uuid.uuid4().hex}"

    @property
    def service_url(self) -> str:
        """Where clients connect."""
        return self._place.service_url

    def client(self, pulsar: ModuleType, service_url: str | None = None) -> Any:
        """Open a client, perhaps through a proxy; the caller closes it."""
        return pulsar.Client(service_url or self._place.service_url, **self._options(pulsar))

    def async_client(self, pulsar: ModuleType) -> Any:
        """Open the asyncio client; the caller closes it."""
        module = importlib.import_module(f"{pulsar.__name__}.asyncio")
        return module.Client(self._place.service_url, **self._options(pulsar))

    def _options(self, pulsar: ModuleType) -> dict[str, Any]:
        options: dict[str, Any] = {} if pulsar is official else {"admin": self._place.admin_url}
        if self._place.token is not None:
            options["authentication"] = pulsar.AuthenticationToken(self._place.token)
        return options

    def chunked(self, label: str, chunks: int = 3) -> bytes:
        """Make a payload of that label that a producer with chunking sends in so many chunks, or fewer large ones."""
        chunks = max(min(chunks, _MOST_BYTES // self._place.chunk_bytes), min(chunks, _FEWEST_CHUNKS))
        # A chunk's own headers take up to 10 KiB of its room, so half of the last chunk stays empty.
        size = int((chunks - 0.5) * (self._place.chunk_bytes - 10 * 1024))
        return label.encode().ljust(size, b" ")

    def count(self, wanted: int, least: int) -> int:
        """Return how many messages of three chunks to send: as many as wanted, or fewer large ones."""
        return max(min(wanted, _MOST_TOTAL_BYTES // (_FEWEST_CHUNKS * self._place.chunk_bytes)), least)

    def apart(self, pulsar: ModuleType, function: Callable[..., Any], *arguments: Any, seconds: float) -> Outcome:
        """Call a function with this client in a process of its own, which may hang or crash there."""
        with Apart(function, pulsar.__name__, self._place, *arguments, seconds=seconds) as process:
            return process.outcome()

    def stored(self, topic: str) -> list[str]:
        """Read all that is on the topic with the official client, whatever client wrote it: the labels, in order."""
        client = self.client(official)
        try:
            client.create_producer(topic).send(END.encode())
            return list(labels(client.create_reader(topic, official.MessageId.earliest).read_next))
        finally:
            client.close()

    def left_over(self, topic: str, subscription: str) -> tuple[int, int]:
        """Count what a subscription has not acknowledged, by the broker's cursor.

        Returns:
            How many messages, and how many entries of theirs.
        """
        stats = self.admin.internal_stats(topic)
        entries = [self.admin.entry(topic, at.ledger_id, at.entry_id) for at in unacknowledged(stats, subscription)]
        return len({(entry.producer_name, entry.sequence_id) for entry in entries}), len(entries)


@contextlib.contextmanager
def cut_amid(proxy: FaultProxy) -> Iterator[None]:
    """Have nothing get through for a second, and then the connections end, amid whatever the block waits for."""

    def cut() -> None:
        proxy.cut()
        proxy.resume()

    proxy.pause()
    end = threading.Timer(_SILENT_SECONDS, cut)
    end.start()
    try:
        yield
    finally:
        end.join()


def label(message: Any) -> str:
    """Give the label of a message: its payload without what only fills it up."""
    text: str = message.data().decode()
    return text.rstrip()


def send_batch(client: Any, topic: str, texts: Iterable[str]) -> None:
    """Send messages of these labels as one batch, and wait until it is persisted."""
    producer = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=1_000)
    for text in texts:
        producer.send_async(text.encode(), None)
    producer.flush()


def labels(receive: Callable[[int], Any], *, millis: int = _RECEIVE_MILLIS) -> Iterator[str]:
    """Receive until the message `END`, or until nothing came for so long: the labels, without `END`."""
    while True:
        try:
            found = label(receive(millis))
        except official.Timeout:
            return
        if found == END:
            return
        yield found


def rebuilt(pulsar: ModuleType, message_id: Any) -> Any:
    """Rebuild an id from its numbers, as a program does that stores them in columns of a table."""
    return pulsar.MessageId(
        message_id.partition(), message_id.ledger_id(), message_id.entry_id(), message_id.batch_index()
    )
