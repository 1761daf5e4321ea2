"""A program is aborted when it ends while a daemon thread of it is sending."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

from ._support import Client, Counts, Env

CLAIM = "a program ends well while a daemon thread of it is sending"
REFERENCE = "docs/reproduce.md#exit-sending"

_MESSAGES = 20
_SECONDS = 15.0
_open: list[object] = []
"""What a program's main module holds to the end."""


def send_and_end(pulsar: Client, env: Env, topic: str) -> None:
    """Come to the end of the program while a daemon thread is sending."""
    client = env.client(pulsar)
    producer = client.create_producer(topic)
    _open.extend((client, producer))
    sent = threading.Semaphore(0)

    def send(producer: Any) -> None:
        with contextlib.suppress(Exception):  # how the program ends is all that counts here
            while True:
                producer.send(b"heartbeat")
                sent.release()

    threading.Thread(target=send, args=(producer,), daemon=True).start()
    for _ in range(_MESSAGES):
        sent.acquire()


def run(pulsar: Client, env: Env) -> Counts:
    """Let a process end like that."""
    return Counts(ended=env.apart(pulsar, send_and_end, env.topic(), seconds=_SECONDS).ended)
