"""The load of a cluster under faults: writers in processes, and consumers of every type and kind of message."""

from __future__ import annotations

import contextlib
import importlib
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pulsar as official
from acks_common import KINDS, TYPES, Outcome, Sender, quiet, unacknowledged
from acks_streams import Stream, wait_until_acknowledged
from producer_topics import PARTITIONS, Writer
from producer_writer import KINDS as WRITER_KINDS

from pulsar_ext import AdminError, Position, PulsarAdmin
from pulsar_ext.admin import Retention

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import producer_topics

    from pulsar_ext.testing import PulsarCluster

__all__ = ["NAMESPACE", "WRITERS", "Consumed", "Load", "prepare_namespace"]

NAMESPACE: Final = "public/faults"
WRITERS: Final = ("unbatched", "batched", "chunked", "4 partitions")
_BUNDLES: Final = 4
_MESSAGES: Final = 40
# Sixteen processes and five Java machines share the processors.
_SHARE: Final = 0.2
_OURS: Final = "pulsar_ext"
_OURS_SECONDS: Final = 90.0
_OFFICIAL_SECONDS: Final = 10.0


@dataclass
class Consumed:
    """Outcome of one subscription under one fault, with the client that consumed."""

    client: str
    outcome: Outcome
    left: str = ""
    """Unacknowledged entries at the end, by the broker; only of a late subscription."""

    @property
    def clean(self) -> bool:
        """True if every message was delivered and acknowledged in time after each fault."""
        return not (self.outcome.failed or self.left)


def prepare_namespace(cluster: PulsarCluster) -> None:
    """Create the namespace: few bundles, so that a move moves many topics, and retention for the counts."""
    with PulsarAdmin(cluster.admin_url) as admin:
        if NAMESPACE not in admin.namespaces("public"):
            admin.create_namespace(NAMESPACE, bundles=_BUNDLES)
        # Without a subscription, the broker deletes what it has deduplicated as soon as a ledger is full.
        admin.set_retention(NAMESPACE, Retention(-1, -1))


class Load(contextlib.ExitStack):
    """The writers and consumers of one fault, each client with its own topics; leaving the block ends them.

    Args:
        cluster: the cluster.
        fault: prefix of the topics.
        clients: names of the client packages, `pulsar_ext` and `pulsar`.
        url: service URL of the consumers.
    """

    def __init__(self, cluster: PulsarCluster, fault: str, clients: Sequence[str], url: str) -> None:
        super().__init__()
        self._admin = self.enter_context(PulsarAdmin(cluster.admin_url))
        self._each_broker = [self.enter_context(PulsarAdmin(url)) for url in cluster.admin_urls]
        directory = Path(self.enter_context(tempfile.TemporaryDirectory()))
        self._service_url, self._fault, self._cycles, self._sent = cluster.service_url, fault, 0, 0
        self._writers = [
            Writer(client, kind, fault, url, cluster.admin_url, directory, namespace=NAMESPACE, share=_SHARE)
            for client in clients
            for kind in WRITERS
        ]
        for writer in self._writers:
            if WRITER_KINDS[writer.task.kind].partitioned:
                self._admin.create_partitioned_topic(writer.task.topic, PARTITIONS)
            writer.start()
            self.callback(writer.kill)
        self._sending = self._open(official, self._service_url)
        self._streams: dict[str, list[Stream]] = {}
        for client in clients:
            module = importlib.import_module(client)
            consuming = self._open(module, url, **({"admin": cluster.admin_url} if client == _OURS else {}))
            self._streams[client] = [
                self._stream(consuming, client, type_name, kind) for type_name in TYPES for kind in KINDS
            ]

    def _open(self, module: Any, url: str, **options: Any) -> Any:
        client = module.Client(url, logger=quiet(), **options)
        self.callback(client.close)
        return client

    def _stream(self, consuming: Any, client: str, type_name: str, kind: str) -> Stream:
        topic = f"persistent://{NAMESPACE}/{self._fault}-{client}-{type_name}-{kind}"
        outcome = Outcome(self._fault, type_name, kind)
        stream = Stream(consuming, Sender(self._sending, topic, kind), topic, outcome, ahead=False)
        self.callback(stream.stop)
        return stream

    @property
    def topics(self) -> list[str]:
        """Return every topic in use, with the partitions of partitioned ones."""
        streams = [stream.topic for streams in self._streams.values() for stream in streams]
        return [*streams, *(topic for writer in self._writers for topic in writer.topics())]

    def send(self) -> None:
        """Send more messages to the consumers; they are persisted when this returns."""
        self._cycles += 1
        for streams in self._streams.values():
            for stream in streams:
                stream.send(_MESSAGES)

    def wait_until_acknowledged(self) -> None:
        """Wait until everything was delivered and acknowledged; for the official client shortly, and once a stream."""
        for client, streams in self._streams.items():
            whole = [stream for stream in streams if not stream.outcome.holes]
            wait_until_acknowledged(
                self._left_of, whole, self._cycles, _OURS_SECONDS if client == _OURS else _OFFICIAL_SECONDS
            )

    def produced(self) -> Iterator[producer_topics.Outcome]:
        """End the writers, and yield the contents of their topics, counted with the official client."""
        for writer in self._writers:
            writer.ask_to_stop()
        for writer in self._writers:
            yield writer.outcome(self._cycles, self._service_url, self._fault)

    def consumed(self) -> Iterator[Consumed]:
        """End the consumers, and yield their outcomes, with the broker's backlog."""
        for client, streams in self._streams.items():
            for stream in streams:
                # A late one was not waited for again: it may be complete by now.
                left = self._left_of(stream.topic) if stream.outcome.holes else ""
                stream.stop()
                stream.outcome.cycles = self._cycles
                yield Consumed(client, stream.outcome, left)

    def _left_of(self, topic: str) -> str:
        """Return a topic's unacknowledged entries, from the broker with the longest copy of it.

        A broker whose session with the store has expired may still answer for topics that another one has taken.
        """
        return unacknowledged(max(self._each_broker, key=lambda admin: _end_of(admin, topic)), topic)


def _end_of(admin: PulsarAdmin, topic: str) -> Position:
    """Return the last entry of a topic by one broker; a position before all entries if it does not answer."""
    try:
        return admin.internal_stats(topic).last_confirmed_entry
    except AdminError:
        return Position(-1, -1)
