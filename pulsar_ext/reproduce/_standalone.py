"""What a printed program has in place of this package: it is copied into the program, as far as its steps need it.

It uses the official client and the standard library alone. `_script` takes it apart by class and by method.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.request
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote, urlsplit

import pulsar
import pulsar.asyncio

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._scenario import Counts

    DEDUPLICATION: bool
    run: Callable[[Env], Counts]

__all__ = ["Admin", "Env", "FaultProxy", "Outcome", "Position", "be_apart", "key_slot", "main"]

_PREFETCH_BYTES = 65_536
_POLL_SECONDS = 0.05
_BIG_BYTES = 100_000_000


class Env:
    """Where the steps take place: a broker, and a namespace of their own on it.

    Args:
        service_url: where clients connect.
        admin_url: the admin REST API.
        namespace: an existing one, in a child process; None to make one.
    """

    def __init__(self, service_url: str, admin_url: str, namespace: str | None = None) -> None:
        self.service_url = service_url
        self.admin_url = admin_url
        self.admin = Admin(admin_url)
        self.namespace = namespace or self.admin.create_namespace()

    def topic(self) -> str:
        """Name a topic that is not in use."""
        return f"persistent://{self.namespace}/{uuid.uuid4().hex}"

    def client(self, service_url: str | None = None) -> pulsar.Client:
        """Open a client, perhaps through a proxy."""
        quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
        return pulsar.Client(service_url or self.service_url, logger=quiet)

    def async_client(self) -> pulsar.asyncio.Client:
        """Open the asyncio client."""
        return pulsar.asyncio.Client(self.service_url)

    def chunked(self, label: str, chunks: int = 3) -> bytes:
        """Make a payload that a producer with chunking sends in so many chunks."""
        size = int((chunks - 0.5) * (self.admin.largest_message() - 10 * 1024))
        if size > _BIG_BYTES:
            sys.exit("these messages would be too large: set maxMessageSize=102400 in standalone.conf for this program")
        return label.encode().ljust(size, b" ")

    def count(self, wanted: int, least: int) -> int:
        """Return how many messages to send: as many as wanted, for chunks that are large are refused."""
        return max(wanted, least)

    def stored(self, topic: str) -> list[str]:
        """Read all that is on the topic: the labels, in order."""
        client, found = self.client(), list[str]()
        try:
            client.create_producer(topic).send(b"end")
            reader = client.create_reader(topic, pulsar.MessageId.earliest)
            with contextlib.suppress(pulsar.Timeout):
                while (text := reader.read_next(20_000).data().decode().rstrip()) != "end":
                    found.append(text)
        finally:
            client.close()
        return found

    def left_over(self, topic: str, subscription: str) -> tuple[int, int]:
        """Count what a subscription has not acknowledged by the broker's cursor: messages, and entries of theirs."""
        entries = self.admin.unacknowledged(topic, subscription)
        messages = {self.admin.message_of(topic, ledger, entry) for ledger, entry in entries}
        return len(messages), len(entries)

    def apart(self, function: Callable[..., Any], *arguments: Any, seconds: float) -> Outcome:
        """Call a function of this program in a process of its own, which may hang or crash there."""
        order = json.dumps([function.__name__, self.service_url, self.admin_url, self.namespace, arguments])
        with tempfile.TemporaryDirectory() as directory:
            result = Path(directory, "result")
            process = subprocess.Popen(
                [sys.executable, __file__, "--apart", order, str(result)],
                start_new_session=True,
                stderr=subprocess.DEVNULL,
            )
            try:
                code = process.wait(seconds)
                ended = f"crashed ({signal.Signals(-code).name})" if code < 0 else "" if code == 0 else "failed"
            except subprocess.TimeoutExpired:
                ended = "hung"
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return Outcome(ended, json.loads(result.read_text()) if result.exists() else None)


@dataclass
class Outcome:
    """How a process ended, empty if well, and what its function returned."""

    ended: str
    value: Any


class Admin:
    """The few calls of the admin REST API that the steps need.

    Args:
        url: where it is.
    """

    def __init__(self, url: str) -> None:
        self._url = url

    def _ask(self, method: str, path: str, data: object = None) -> Any:
        body = None if data is None else json.dumps(data).encode()
        request = urllib.request.Request(f"{self._url}/admin/v2/{path}", body, method=method)  # noqa: S310  # the URL that the user gave
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310  # likewise
            text = answer.read()
            return answer.headers if method == "HEAD" else json.loads(text or b"null")

    def _path(self, topic: str) -> str:
        return f"persistent/{topic.removeprefix('persistent://')}"

    def create_namespace(self) -> str:
        """Make a namespace below the tenant public."""
        namespace = f"public/reproduce-{uuid.uuid4().hex[:12]}"
        self._ask("PUT", f"namespaces/{namespace}")
        self._ask("POST", f"namespaces/{namespace}/deduplication", data=DEDUPLICATION)  # noqa: F821  # the program has it
        return namespace

    def largest_message(self) -> int:
        """Give the broker's limit, above which messages are sent in chunks."""
        return int(self._ask("GET", "brokers/configuration/runtime")["maxMessageSize"])

    def create_partitioned_topic(self, topic: str, partitions: int) -> None:
        """Make a topic with partitions."""
        self._ask("PUT", f"{self._path(topic)}/partitions", partitions)

    def create_topic(self, topic: str) -> None:
        """Make a topic without partitions."""
        self._ask("PUT", self._path(topic))

    def max_message_size(self, topic: str) -> int | None:
        """Give above how many bytes a topic takes no message."""
        size: int | None = self._ask("GET", f"{self._path(topic)}/maxMessageSize")
        return size

    def set_max_message_size(self, topic: str, size: int) -> None:
        """Set above how many bytes a topic takes no message."""
        self._ask("POST", f"{self._path(topic)}/maxMessageSize", size)

    def unload(self, topic: str) -> None:
        """Have the broker close a topic, and load it again."""
        self._ask("PUT", f"{self._path(topic)}/unload")

    def create_subscription(self, topic: str, subscription: str, _position: str) -> None:
        """Make a topic, and a subscription at its beginning."""
        with contextlib.suppress(urllib.error.HTTPError):  # it is there
            self.create_topic(topic)
        self._ask("PUT", f"{self._path(topic)}/subscription/{quote(subscription, '')}", {"ledgerId": -1, "entryId": -1})

    def skip_entries(self, topic: str, subscription: str, count: int) -> None:
        """Skip as the broker does."""
        self._ask("POST", f"{self._path(topic)}/subscription/{quote(subscription, '')}/skip/{count}")

    def reset_cursor(self, topic: str, subscription: str, position: Position) -> None:
        """Move a cursor to an entry, which is then delivered next."""
        where = {"ledgerId": position.ledger_id, "entryId": position.entry_id, "partitionIndex": -1, "batchIndex": -1}
        self._ask("POST", f"{self._path(topic)}/subscription/{quote(subscription, '')}/resetcursor", where)

    def unacknowledged(self, topic: str, subscription: str) -> list[tuple[int, int]]:
        """Give the ledger and entry of everything that a subscription has not acknowledged."""
        stats = self._ask("GET", f"{self._path(topic)}/internalStats")
        cursor = stats["cursors"][subscription]
        mark = tuple(map(int, cursor["markDeletePosition"].split(":")))
        ranges = cursor["individuallyDeletedMessages"].strip("[]")
        done = set()
        for part in filter(None, ranges.replace("],", "]|").split("|")):
            (ledger, first), (_, last) = (map(int, end.split(":")) for end in part.strip("([]) ").split(".."))
            done |= {(ledger, entry) for entry in range(first + 1, last + 1)}
        open_ledger = stats["ledgers"][-1]["ledgerId"]
        sizes = {one["ledgerId"]: one["entries"] for one in stats["ledgers"]}
        sizes[open_ledger] = stats["currentLedgerEntries"]
        every = [(ledger, entry) for ledger, size in sizes.items() for entry in range(size)]
        return [one for one in every if one > mark and one not in done]

    def message_of(self, topic: str, ledger: int, entry: int) -> tuple[str, str]:
        """Say which message an entry is, or is a chunk of: its producer's name, and its sequence id."""
        headers = self._ask("HEAD", f"{self._path(topic)}/ledger/{ledger}/entry/{entry}")
        return headers["X-Pulsar-producer-name"], headers["X-Pulsar-sequence-id"]


@dataclass
class Position:
    """An entry of a topic."""

    ledger_id: int
    entry_id: int


class FaultProxy:
    """A TCP proxy before the broker, which fails on request.

    Args:
        host: the broker's.
        port: the broker's.
    """

    def __init__(self, host: str, port: int) -> None:
        self._target = host, port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._paused = self._refusing = self._closed = False
        self.service_url = f"pulsar://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    @classmethod
    def to(cls, service_url: str) -> Self:
        """Make one before a broker."""
        parts = urlsplit(service_url)
        return cls(parts.hostname or "localhost", parts.port or 6650)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closed = True
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                if self._refusing:
                    self._reset(client)
                    continue
                pair = client, socket.create_connection(self._target)
                self._pairs.append(pair)
                threading.Thread(target=self._carry, args=pair, daemon=True).start()

    def _carry(self, client: socket.socket, broker: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError):  # cut
            while True:
                ready, _, _ = select.select([] if self._paused else [client, broker], [], [], _POLL_SECONDS)
                for one in ready if not self._paused else ():
                    data = one.recv(_PREFETCH_BYTES)
                    if not data:
                        self._reset(client)
                        self._reset(broker)
                        return
                    (broker if one is client else client).sendall(data)

    @staticmethod
    def _reset(one: socket.socket) -> None:
        with contextlib.suppress(OSError):
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            one.shutdown(socket.SHUT_RDWR)
        one.close()

    def cut(self) -> None:
        """End every connection."""
        while self._pairs:
            for one in self._pairs.pop():
                self._reset(one)

    def pause(self) -> None:
        """Let nothing through; connections stay open."""
        self._paused = True

    def resume(self) -> None:
        """Let everything through again."""
        self._paused = False

    def refuse(self) -> None:
        """Refuse new connections."""
        self._refusing = True

    def accept(self) -> None:
        """Take new connections again."""
        self._refusing = False


def key_slot(key: str) -> int:
    """Give the slot of a key as the broker does: Murmur3 (32 bits, seed 0), modulo 65536, and 1 in place of 0."""
    mask, data = 0xFFFFFFFF, key.encode()
    value, whole = 0, len(data) // 4 * 4
    for at in range(0, len(data), 4):
        word = int.from_bytes(data[at : at + 4], "little") * 0xCC9E2D51 & mask
        value ^= ((word << 15 | word >> 17) & mask) * 0x1B873593 & mask
        if at < whole:
            value = ((value << 13 | value >> 19) * 5 + 0xE6546B64) & mask
    value ^= len(data)
    value = (value ^ value >> 16) * 0x85EBCA6B & mask
    value = (value ^ value >> 13) * 0xC2B2AE35 & mask
    return ((value ^ value >> 16) & 0x7FFFFFFF) % 65536 or 1


def main() -> None:
    """Take the steps, print what became of the messages, and exit with 1 if that is not what should have."""
    service_url, admin_url = (*sys.argv[1:], "pulsar://localhost:6650", "http://localhost:8080")[:2]
    counts = run(Env(service_url, admin_url))  # noqa: F821  # the program has it
    print(counts)  # noqa: T201  # the result
    sys.exit(0 if counts.clean else 1)


def be_apart() -> None:
    """Be the process that `Env.apart` starts: call the function, and come to the end of the program."""
    name, service_url, admin_url, namespace, arguments = json.loads(sys.argv[2])
    value = globals()[name](Env(service_url, admin_url, namespace), *arguments)
    Path(sys.argv[3]).write_text(json.dumps(value))
