"""A writer of `producer.py`: sends 0, 1, 2 … with these sequence ids, and resumes after its client's last id."""

from __future__ import annotations

import contextlib
import importlib
import json
import threading
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import pulsar as official

import pulsar_ext

__all__ = ["KINDS", "Kind", "Task", "write"]


@dataclass(frozen=True)
class Kind:
    """A kind of producer: its arguments, and its messages."""

    settings: dict[str, Any]
    per_second: int
    keys: int = 0
    bytes: int = 0
    partitioned: bool = False


_BATCHED: Final = {"batching_enabled": True, "batching_max_messages": 50, "batching_max_publish_delay_ms": 5}
KINDS: Final = {
    "unbatched": Kind({}, 200),
    "batched": Kind(_BATCHED, 1_000),
    "key-batched": Kind({**_BATCHED, "batching_type": official.BatchingType.KeyBased}, 1_000, keys=7),
    "chunked": Kind({"chunking_enabled": True}, 8, bytes=250_000),
    "4 partitions": Kind(_BATCHED, 1_000, keys=40, partitioned=True),
}


@dataclass(frozen=True)
class Task:
    """A writer's task, and the files for its reports."""

    client: str
    kind: str
    topic: str
    name: str
    url: str
    admin_url: str
    send_timeout_millis: int
    stop: str
    result: str
    working: str
    begun: str
    share: float = 1.0
    """Fraction of its kind's rate."""


class _FailedError(Exception):
    """A send did not persist its message."""


def write(task: Task) -> None:
    """Write until the file `stop` exists and everything sent is persisted, by the client's reports."""
    lib = importlib.import_module(task.client)
    answers: dict[int, str] = {}
    while True:
        client = None
        try:
            more = {"admin": task.admin_url} if lib is pulsar_ext else {}
            logger = official.ConsoleLogger(official.LoggerLevel.Error)
            client = lib.Client(task.url, logger=logger, operation_timeout_seconds=10, **more)
            sent = _session(lib, client, task, answers)
        except (official.PulsarException, ValueError, _FailedError):
            time.sleep(0.1)
        else:
            Path(task.result).write_text(json.dumps({"sent": sent, "answers": answers}), encoding="utf-8")
            client.close()
            return
        finally:
            if client is not None:
                _close(client)


def _close(client: Any) -> None:
    """Close, with a timeout, because the broker may be down."""

    def close() -> None:
        with contextlib.suppress(Exception):
            client.close()

    closer = threading.Thread(target=close, daemon=True)
    closer.start()
    closer.join(5)


def _session(lib: Any, client: Any, task: Task, answers: dict[int, str]) -> int:
    """Send from the client's last id on; return the number of messages, once all are persisted.

    `answers` gets the client's report for each: its id, or that it is a duplicate.
    """
    kind = KINDS[task.kind]
    more: dict[str, Any] = {"deduplication": True} if lib is pulsar_ext else {}
    producer = client.create_producer(
        task.topic,
        producer_name=task.name,
        send_timeout_millis=task.send_timeout_millis,
        block_if_queue_full=True,
        **kind.settings,
        **more,
    )
    last = producer.last_sequence_id_published() if lib is pulsar_ext else producer.last_sequence_id()
    number = last + 1
    with Path(task.begun).open("a", encoding="utf-8") as begun:
        print(number, file=begun)
    # What one partition holds, the slowest has to get as well, even when it is time to stop.
    highest = producer.last_sequence_id_pushed() + 1 if lib is pulsar_ext else 0
    failures: list[Any] = []

    def on_outcome(of: int, result: Any, message_id: Any) -> None:
        if result == official.Result.Ok:
            answers[of] = f"{message_id.ledger_id()}:{message_id.entry_id()}"
        elif result is pulsar_ext.DUPLICATE_MESSAGE:
            answers[of] = "a duplicate"
        else:
            failures.append(result)

    stop = Path(task.stop)
    per_second = kind.per_second * task.share
    burst = max(1, int(per_second / 100))
    while not stop.exists() or number < highest:
        for _ in range(burst):
            options = {"partition_key": f"key-{number % kind.keys}"} if kind.keys else {}
            payload = b"%d " % number + b"x" * kind.bytes
            producer.send_async(payload, partial(on_outcome, number), sequence_id=number, **options)
            number += 1
            if number == last + 1 + 2 * burst:
                Path(task.working).touch()
        if failures:
            raise _FailedError(failures[0])
        time.sleep(burst / per_second)
    producer.flush()
    if failures:
        raise _FailedError(failures[0])
    return number
