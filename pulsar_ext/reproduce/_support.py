"""Code that the scenarios share; it uses the official client and the standard library only.

`pulsar-ext reproduce NAME --script` prints this file and a scenario's as one program. So scenarios import nothing else
of this package, and define no name of this file.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from http.client import HTTPMessage
from pathlib import Path
from types import ModuleType
from typing import IO, Any, NamedTuple, Self, TypeAlias
from urllib.parse import urlsplit

import pulsar as official

Client: TypeAlias = ModuleType
"""Module of the client that takes the steps."""

END = "end"
"""Label of the last message, after which its receiver stops."""

RECEIVE_MILLIS = 20_000

KEPT: list[object] = []
"""Objects that a program keeps until its end."""

_SILENT_SECONDS = 1.0
_SCENARIO_SECONDS = 90.0
_LOG_CHARACTERS = 300
_FEWEST_CHUNKS, _MOST_BYTES, _MOST_TOTAL_BYTES = 3, 24 << 20, 48 << 20
"""Limits for brokers with large chunks: chunks of a message, bytes of a message, and bytes of all messages."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of one client's messages in a scenario.

    Args:
        sent: messages that should have been delivered or acknowledged.
        delivered: messages that were delivered.
        lost: messages that were not.
        duplicated: deliveries of a message after its first one.
        stuck: messages that stay in the subscription's backlog forever.
        note: another observation, in a few words.
        ended: how a process failed: `hung`, `crashed (SIGSEGV)`, `error: …`; empty if it did not.
    """

    sent: int = 0
    delivered: int = 0
    lost: int = 0
    duplicated: int = 0
    stuck: int = 0
    note: str = ""
    ended: str = ""

    @classmethod
    def of(
        cls, sent: Iterable[str], received: Iterable[str], *, stuck: int = 0, note: str = "", ended: str = ""
    ) -> Self:
        """Compare the expected labels with the received ones."""
        expected, arrived = Counter(sent), Counter(received)
        delivered, lost = (expected & arrived).total(), (expected - arrived).total()
        return cls(expected.total(), delivered, lost, (arrived - expected).total(), stuck, note, ended)

    @property
    def failed(self) -> bool:
        """True if the scenario itself failed, so that its counts are meaningless."""
        return self.ended.startswith("error")

    @property
    def clean(self) -> bool:
        """True if every message was delivered once and none is stuck."""
        return not (self.lost or self.duplicated or self.stuck or self.ended)

    def __str__(self) -> str:
        faults = [
            f"{count} of {self.sent} {what}"
            for what, count in (("lost", self.lost), ("duplicated", self.duplicated), ("stuck", self.stuck))
            if count
        ]
        if self.ended:
            faults.insert(0, self.ended)
        text = ", ".join(faults) or (f"{self.delivered} of {self.sent}" if self.sent else "fine")
        return f"{text} ({self.note})" if self.note else text

    def to_dict(self) -> dict[str, int | str]:
        """Return the fields as a dict, for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Place:
    """Broker and namespace in which a scenario runs.

    Args:
        service_url: URL for clients.
        admin_url: URL of the admin REST API.
        namespace: `tenant/namespace` of the scenario's topics.
        chunk_bytes: the broker's `maxMessageSize`, above which a message is sent in chunks.
        token: token to authenticate with, if any.
        broker_version: the broker's version.
        why_not: why the scenarios cannot run there; empty if they can.
    """

    service_url: str
    admin_url: str
    namespace: str
    chunk_bytes: int = 5 * 1024 * 1024
    token: str | None = field(default=None, repr=False)
    broker_version: str = ""
    why_not: str = ""


class Env:
    """Environment of `run(pulsar, env)`: the broker, unused topics, and helpers that count.

    Args:
        place: the broker and the namespace.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self.service_url = place.service_url
        """URL for clients."""
        self.admin = Admin(place.admin_url, place.token)

    def topic(self) -> str:
        """Return the name of an unused topic."""
        return f"persistent://{self._place.namespace}/{uuid.uuid4().hex}"

    def client(self, pulsar: ModuleType, service_url: str | None = None) -> official.Client:
        """Open a client, optionally through a proxy; the caller closes it."""
        return pulsar.Client(service_url or self.service_url, **self._options(pulsar))

    def opened(
        self, pulsar: ModuleType, proxy: FaultProxy | None = None
    ) -> contextlib.AbstractContextManager[official.Client]:
        """Open a client, optionally through a proxy; a `with` closes it afterwards."""
        return contextlib.closing(self.client(pulsar, (proxy or self).service_url))

    def async_client(self, pulsar: ModuleType) -> official.asyncio.Client:
        """Open the asyncio client; the caller closes it."""
        module = importlib.import_module(f"{pulsar.__name__}.asyncio")
        return module.Client(self.service_url, **self._options(pulsar))

    def _options(self, pulsar: ModuleType) -> dict[str, object]:
        options: dict[str, object] = {} if pulsar is official else {"admin": self._place.admin_url}
        if self._place.token is not None:
            options["authentication"] = pulsar.AuthenticationToken(self._place.token)
        return options

    def chunked(self, label: str, chunks: int = 3) -> bytes:
        """Return a payload with a label, of `chunks` chunks, or of fewer if they are large."""
        chunks = max(min(chunks, _MOST_BYTES // self._place.chunk_bytes), min(chunks, _FEWEST_CHUNKS))
        # A chunk's own headers take up to 10 KiB of its size, so half of the last chunk stays empty.
        size = int((chunks - 0.5) * (self._place.chunk_bytes - 10 * 1024))
        return label.encode().ljust(size, b" ")

    def count(self, wanted: int, least: int) -> int:
        """Return the number of three-chunk messages to send: `wanted`, or at least `least` if chunks are large."""
        return max(min(wanted, _MOST_TOTAL_BYTES // (_FEWEST_CHUNKS * self._place.chunk_bytes)), least)

    def run_isolated(
        self, pulsar: ModuleType, function: Callable[..., object], *arguments: object, seconds: float = 15.0
    ) -> Outcome:
        """Call a function with this client in a separate process, which may hang or crash."""
        with IsolatedProcess(function, pulsar.__name__, self._place, *arguments, seconds=seconds) as process:
            return process.outcome()

    def stored(self, topic: str) -> list[str]:
        """Return the labels of all messages of the topic in order, read with the official client."""
        with self.opened(official) as client:
            client.create_producer(topic).send(END.encode())
            return list(labels(client.create_reader(topic, official.MessageId.earliest).read_next))

    def left_over(self, topic: str, subscription: str) -> tuple[int, int]:
        """Return the numbers of unacknowledged messages and entries of a subscription, by its cursor."""
        entries = self.admin.unacknowledged(topic, subscription)
        return len({self.admin.message_of(topic, ledger, entry) for ledger, entry in entries}), len(entries)


def numbered(count: int) -> list[str]:
    """Return labels of messages."""
    return [f"message {number}" for number in range(count)]


def wait_until(condition: Callable[[], bool], seconds: float) -> None:
    """Wait until a condition is true, at most for some seconds."""
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)


def label(message: official.Message) -> str:
    """Return the label of a message: its payload without the padding."""
    text: str = message.data().decode()
    return text.rstrip()


def labels(receive: Callable[[int], official.Message], *, millis: int = RECEIVE_MILLIS) -> Iterator[str]:
    """Yield the labels of received messages until `END`, or until none arrives within `millis`."""
    while True:
        try:
            found = label(receive(millis))
        except official.Timeout:
            return
        if found == END:
            return
        yield found


def send_all(producer: official.Producer, texts: Iterable[str]) -> None:
    """Send messages with these labels one after another."""
    for text in texts:
        producer.send(text.encode())


def send_batch(client: official.Client, topic: str, texts: Iterable[str]) -> None:
    """Send messages with these labels as one batch, and wait until it is persisted."""
    producer = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=1_000)
    for text in texts:
        producer.send_async(text.encode(), None)
    producer.flush()


def send_numbers(
    pulsar: ModuleType, env: Env, topic: str, numbers: Iterable[int], *, batched: bool
) -> list[official.Result]:
    """Send numbers with themselves as sequence ids, as a resuming program does; return the results of the sends."""
    more: dict[str, object] = {} if pulsar is official else {"deduplication": True}
    if batched:
        more |= {"batching_enabled": True, "batching_max_publish_delay_ms": 1000}
    with env.opened(pulsar) as client:
        producer = client.create_producer(topic, producer_name="resuming", send_timeout_millis=0, **more)
        results: list[official.Result] = []
        for number in numbers:
            producer.send_async(str(number).encode(), lambda result, _: results.append(result), sequence_id=number)
            if not batched:
                producer.flush()
        producer.flush()
        producer.close()
        return results


def rebuilt(pulsar: ModuleType, message_id: official.MessageId) -> official.MessageId:
    """Rebuild an id from its numbers, as a program does that stores them in columns of a table."""
    return pulsar.MessageId(
        message_id.partition(), message_id.ledger_id(), message_id.entry_id(), message_id.batch_index()
    )


def acknowledge_by(form: Callable[[official.MessageId], official.MessageId], pulsar: ModuleType, env: Env) -> Counts:
    """Receive chunked messages, acknowledge each by a form of its id, close, and read the broker's cursor."""
    topic, sent, received = env.topic(), numbered(3), []
    with env.opened(pulsar) as client:
        consumer = client.subscribe(topic, "s")
        producer = client.create_producer(topic, chunking_enabled=True)
        for text in sent:
            producer.send(env.chunked(text))
            message = consumer.receive(RECEIVE_MILLIS)
            received.append(label(message))
            consumer.acknowledge(form(message.message_id()))
        consumer.close()  # after it has sent pending acknowledgements
    stuck, entries = env.left_over(topic, "s")
    return Counts.of(sent, received, stuck=stuck, note=f"{entries} chunks unacknowledged" if entries else "")


def skip_and_receive(
    pulsar: ModuleType, env: Env, contents: list[bytes], count: int, **producer_options: object
) -> Counts:
    """Send messages, skip the first `count`, receive and acknowledge the others, and read the broker's cursor."""
    topic = env.topic()
    with env.opened(pulsar) as client:
        client.subscribe(topic, "s").close()
        producer = client.create_producer(topic, **producer_options)
        for content in contents:
            producer.send_async(content, lambda *_: None)
        producer.flush()
        if pulsar is official:
            env.admin.request("POST", f"{topic}/subscription/s/skip/{count}")  # no official client has a skip
        else:
            client.skip_messages(topic, "s", count)
        producer.send(END.encode())
        consumer, received = client.subscribe(topic, "s"), []
        while (message := consumer.receive(RECEIVE_MILLIS)) and label(message) != END:
            received.append(label(message))
            consumer.acknowledge(message)
        consumer.acknowledge(message)
        consumer.close()  # after it has sent pending acknowledgements
    stuck, entries = env.left_over(topic, "s")
    note = f"{entries} entries stay in the backlog" if entries else ""
    return Counts.of([content.decode().rstrip() for content in contents[count:]], received, stuck=stuck, note=note)


def run_programs(
    pulsar: ModuleType, env: Env, program: Callable[..., object], *, programs: int, messages: int, seconds: float = 15.0
) -> tuple[list[Outcome], int]:
    """Let programs receive all messages, each on its own subscription; return their outcomes, and what is redelivered.

    There are several because one may be lucky: acknowledgements are sent every 100 ms, perhaps just before its end.
    """
    topic, names = env.topic(), [f"program-{number}" for number in range(programs)]
    for name in names:
        env.admin.request("PUT", f"{topic}/subscription/{name}", {"ledgerId": -1, "entryId": -1})  # at the beginning
    with env.opened(pulsar) as client:
        send_all(client.create_producer(topic), numbered(messages))
    outcomes = [env.run_isolated(pulsar, program, topic, name, seconds=seconds) for name in names]
    return outcomes, sum(env.left_over(topic, name)[0] for name in names)


def key_slot(key: str) -> int:
    """Return the slot of a key, as the broker computes it: Murmur3 (32 bits, seed 0) modulo 65536, 0 replaced by 1."""
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


class Admin:
    """Client of the few admin REST calls that the steps need."""

    def __init__(self, url: str, token: str | None = None) -> None:
        self._url = url.rstrip("/")
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        self._opener = urllib.request.build_opener(_Redirects)

    def request(self, method: str, path: str, data: object = None) -> Any:
        """Send a request to a path, which may begin with a topic; return the answer's JSON, or for HEAD its headers."""
        body = None if data is None else json.dumps(data).encode()
        url = f"{self._url}/admin/v2/{path.replace('://', '/', 1)}"
        request = urllib.request.Request(url, body, self._headers, method=method)  # noqa: S310  # the user's URL
        with self._opener.open(request, timeout=30) as answer:
            text = answer.read()
            return answer.headers if method == "HEAD" else json.loads(text or b"null")

    def unacknowledged(self, topic: str, subscription: str) -> list[tuple[int, int]]:
        """Return ledger and entry of each unacknowledged entry of a subscription."""
        stats = self.request("GET", f"{topic}/internalStats")
        cursor = stats["cursors"][subscription]
        mark = tuple(map(int, cursor["markDeletePosition"].split(":")))
        ranges = cursor["individuallyDeletedMessages"].strip("[]")
        done = set()
        for part in filter(None, ranges.replace("],", "]|").split("|")):
            (ledger, first), (_, last) = (map(int, end.split(":")) for end in part.strip("([]) ").split(".."))
            done |= {(ledger, entry) for entry in range(first + 1, last + 1)}
        sizes = {one["ledgerId"]: one["entries"] for one in stats["ledgers"]}
        sizes[stats["ledgers"][-1]["ledgerId"]] = stats["currentLedgerEntries"]
        every = [(ledger, entry) for ledger, size in sizes.items() for entry in range(size)]
        return [one for one in every if one > mark and one not in done]

    def message_of(self, topic: str, ledger: int, entry: int) -> tuple[str, str]:
        """Return the producer name and the sequence id of the message to which an entry belongs."""
        headers = self.request("HEAD", f"{topic}/ledger/{ledger}/entry/{entry}")
        return headers["X-Pulsar-producer-name"], headers["X-Pulsar-sequence-id"]


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Handler that follows a broker's redirect to another broker with any method; Python follows it with GET only."""

    def redirect_request(
        self, req: urllib.request.Request, _fp: IO[bytes], _code: int, _msg: str, _headers: HTTPMessage, newurl: str
    ) -> urllib.request.Request:
        return urllib.request.Request(newurl, req.data, req.headers, method=req.get_method())  # noqa: S310  # the broker's URL


class FaultProxy(contextlib.AbstractContextManager["FaultProxy"]):
    """TCP proxy to a broker that fails on request; leaving its context closes it."""

    def __init__(self, service_url: str) -> None:
        parts = urlsplit(service_url)
        self._target = parts.hostname or "localhost", parts.port or 6650
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self.paused = False
        """True to forward nothing; connections stay open."""
        self.refusing = False
        """True to reject new connections."""
        self.service_url = f"pulsar://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                if self.refusing:
                    self._reset(client)
                    continue
                pair = client, socket.create_connection(self._target)
                self._pairs.append(pair)
                threading.Thread(target=self._carry, args=pair, daemon=True).start()

    def _carry(self, client: socket.socket, broker: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError):  # cut
            while True:
                ready, _, _ = select.select([] if self.paused else [client, broker], [], [], 0.05)
                for one in ready if not self.paused else ():
                    data = one.recv(65_536)
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


@contextlib.contextmanager
def cut_during(proxy: FaultProxy) -> Iterator[None]:
    """Stop forwarding for a second and then end the connections, while the block runs."""

    def cut() -> None:
        proxy.cut()
        proxy.paused = False

    proxy.paused = True
    end = threading.Timer(_SILENT_SECONDS, cut)
    end.start()
    try:
        yield
    finally:
        end.join()


class Outcome(NamedTuple):
    """Outcome of a process: `ended` as in `Counts`, and the value of its function, None if it did not return."""

    ended: str
    value: Any = None


class IsolatedProcess(contextlib.AbstractContextManager["IsolatedProcess"]):
    """Process that calls a function with a client's module, an `Env` and JSON values; leaving the context ends it.

    A leader ends with its process group, and so with the processes that the function started.
    """

    def __init__(
        self,
        function: Callable[..., object],
        client: str,
        place: Place,
        *arguments: object,
        seconds: float,
        leader: bool = False,
    ) -> None:
        self._deadline = time.monotonic() + seconds
        self._leader = leader
        self._directory = tempfile.TemporaryDirectory(prefix="pulsar-ext-")
        self._result = Path(self._directory.name, "result.json")
        self._log = Path(self._directory.name, "log")
        order = {
            "module": function.__module__,
            "function": function.__name__,
            "client": client,
            "place": asdict(place),
            "arguments": arguments,
            "result": str(self._result),
            # A last resort, if this process ends before that.
            "alarm": int(seconds) + 5,
        }
        program = (
            [__file__, "--isolated"] if __name__ == "__main__" else ["-c", f"import {__name__} as s; s.run_function()"]
        )
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, *program], stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=leader
            )
        assert self._process.stdin is not None  # noqa: S101  # it is a pipe
        # A child that has ended already is recognised by its exit code.
        with contextlib.suppress(BrokenPipeError), self._process.stdin as pipe:
            pipe.write(json.dumps(order).encode())

    def __exit__(self, *_: object) -> None:
        if self._process.returncode is None:
            self._kill()
        self._directory.cleanup()

    def outcome(self) -> Outcome:
        """Wait for the end of the process, at most until its deadline."""
        try:
            code = self._process.wait(max(self._deadline - time.monotonic(), 0))
        except subprocess.TimeoutExpired:
            self._kill()
            return Outcome("hung", self._read().get("value"))
        if self._leader:
            self._kill()  # forked processes may still run
        answer = self._read()
        if code < 0:
            return Outcome(f"crashed ({signal.Signals(-code).name})", answer.get("value"))
        if "error" in answer:
            return Outcome(f"error: {answer['error']}")
        if code != 0 or not answer:
            lines = self._log.read_text(errors="replace").strip().splitlines() or ["no output"]
            return Outcome(f"error: exit status {code}: {lines[-1][-_LOG_CHARACTERS:]}")
        return Outcome("", answer["value"])

    def _read(self) -> dict[str, object]:
        try:
            return dict(json.loads(self._result.read_text()))
        except FileNotFoundError:
            return {}

    def _kill(self) -> None:
        if self._leader:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        else:
            self._process.kill()
        self._process.wait()


def run_function() -> None:
    """Run as the process that `IsolatedProcess` starts: read the order from standard input, call, write the answer.

    The answer is written before the interpreter ends, because some scenarios are about how it ends.
    """
    order = json.load(sys.stdin)
    signal.alarm(order["alarm"])
    try:
        function = getattr(importlib.import_module(order["module"]), order["function"])
        client, env = importlib.import_module(order["client"]), Env(Place(**order["place"]))
        answer = {"value": function(client, env, *order["arguments"])}
    except Exception as error:  # noqa: BLE001  # any error is the answer
        answer = {"error": f"{type(error).__name__}: {' '.join(str(error).split())}"}
    draft = Path(order["result"]).with_suffix(".draft")
    draft.write_text(json.dumps(answer, default=lambda value: value.to_dict()))
    draft.rename(order["result"])


def count(run: Callable[..., Counts], place: Place, clients: Sequence[str]) -> list[Counts]:
    """Run the steps of a scenario with several clients at the same time, and return the counts of each."""
    with contextlib.ExitStack() as stack:
        processes = [
            stack.enter_context(IsolatedProcess(run, client, place, seconds=_SCENARIO_SECONDS, leader=True))
            for client in clients
        ]
        counts = []
        for process in processes:
            ended, value = process.outcome()
            # The end of the process takes precedence over the child processes' ends that it reported.
            counts.append(Counts(**{**(value or {}), **({"ended": ended} if ended else {})}))
        return counts


def main(run: Callable[..., Counts], profile: str) -> None:
    """Run the program of one scenario: print the counts, and exit with 1 if the defect shows."""
    if sys.argv[1:] == ["--isolated"]:
        run_function()
        return
    service_url, admin_url = (*sys.argv[1:], "pulsar://localhost:6650", "http://localhost:8080")[:2]
    admin = Admin(admin_url)
    namespace = f"public/reproduce-{uuid.uuid4().hex[:12]}"
    admin.request("PUT", f"namespaces/{namespace}")
    admin.request("POST", f"namespaces/{namespace}/deduplication", profile == "dedup")
    chunk_bytes = int(admin.request("GET", "brokers/configuration/runtime")["maxMessageSize"])
    [counts] = count(run, Place(service_url, admin_url, namespace, chunk_bytes), ["pulsar"])
    print(counts)  # noqa: T201  # the result
    sys.exit(0 if counts.clean else 1)
