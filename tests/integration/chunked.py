"""Shared steps of the tests: messages with an index, draining, waiting, and acknowledged entries."""

from __future__ import annotations

import contextlib
import json
import pickle
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from reach import IMPORTED, Reach

import pulsar_ext
from pulsar_ext import MessageId
from pulsar_ext.ids.position import Position

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pulsar_ext.admin import PulsarAdmin

THREE_CHUNKS = 250_000
"""Size in bytes of a message with three chunks, at a maximum message size of 100 KiB."""

FORMS: dict[str, Callable[[MessageId], MessageId]] = {
    "live": lambda i: i,
    "deserialized": lambda i: MessageId.deserialize(i.serialize()),
    "parsed": lambda i: MessageId.parse(i.to_text()),
    "parsed as its last chunk": lambda i: MessageId.parse(f"{i.ledger_id()}:{i.entry_id()}:{i.partition()}"),
    "pickled": lambda i: pickle.loads(pickle.dumps(i)),
    "json": lambda i: MessageId.from_dict(json.loads(json.dumps(i.to_dict()))),
    "rebuilt": lambda i: MessageId(i.partition(), i.ledger_id(), i.entry_id(), i.batch_index()),
}
"""All forms in which an application may have an id; only the first one is the client's own object."""


def payload(index: int, size: int = THREE_CHUNKS) -> bytes:
    """Return a message's content from which its index and any truncation can be detected."""
    text = b"%d." % index
    return (text * (size // len(text) + 1))[:size]


def index_of(message: Any) -> int:
    """Return the index of a message, after checking that its payload is complete."""
    data = message.data()
    index = int(data.split(b".", 1)[0])
    assert data == payload(index, len(data))
    return index


def drain(receive: Callable[[int], Any], expected: int = 0, quiet_millis: int = 400) -> list[Any]:
    """Receive the expected number of messages, and then more until none arrives for `quiet_millis`."""
    messages: list[Any] = []
    with contextlib.suppress(pulsar_ext.Timeout):
        while len(messages) < expected:
            messages.append(receive(10_000))
    with contextlib.suppress(pulsar_ext.Timeout):
        while True:
            messages.append(receive(quiet_millis))
    return messages


def eventually(condition: Callable[[], bool], seconds: float = 20.0) -> bool:
    """Wait until a condition is true; return False after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def acknowledged(admin: PulsarAdmin, topic: str, subscription: str) -> Iterator[Position]:
    """Yield every entry of the topic that the subscription's cursor counts as acknowledged."""
    stats = admin.internal_stats(topic)
    cursor = stats.cursors[subscription]
    for ledger in stats.ledgers:
        entries = ledger.entries or (
            stats.current_ledger_entries if ledger.ledger_id == stats.ledgers[-1].ledger_id else 0
        )
        for entry in range(entries):
            position = Position(ledger.ledger_id, entry)
            if position <= cursor.mark_delete_position or any(
                position in deleted for deleted in cursor.individually_deleted
            ):
                yield position


_SEND_LARGE = f"""{IMPORTED}
from reach import official_client
client = official_client(Reach.unpack(sys.argv[1]))
producer = client.create_producer(
    sys.argv[2], producer_name="half", chunking_enabled=True, max_pending_messages=3000, send_timeout_millis=0
)
producer.send_async(b"x" * 200_000_000, lambda *_: None)
print("sending", flush=True)
sys.stdin.read()
"""


def send_incomplete_message(broker: Any, admin: PulsarAdmin, topic: str) -> None:
    """Run a producer named "half" that sends a message of 2,000 chunks, and kill it before the last one."""
    before = admin.internal_stats(topic).number_of_entries
    command = [sys.executable, "-c", _SEND_LARGE, Reach.of(broker).pack(), topic]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            deadline = time.monotonic() + 20
            while admin.internal_stats(topic).number_of_entries <= before:
                assert time.monotonic() < deadline, "no chunk was written"
        finally:
            process.kill()
    assert admin.examine(topic, 1).chunk_id + 1 < 2000, "all chunks were written before the kill"
