"""A consumer with a receiver queue of size 0 receives the first message of a batch, and then nothing."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any

import pulsar as official

from ._support import Client, Counts, Env, label, send_batch

CLAIM = "a consumer with receiver_queue_size=0 receives every message of a batch"
REFERENCE = "ConsumerImpl::executeNotifyCallback"

_MESSAGES = 10
_SECONDS = 10.0


def run(pulsar: Client, env: Env) -> Counts:
    """Send a batch of ten, and receive it without a queue on a thread, which may wait forever."""
    topic, client = env.topic(), env.client(pulsar)
    sent = [f"message {number}" for number in range(_MESSAGES)]
    received: list[str] = []
    try:
        consumer = client.subscribe(topic, "s", receiver_queue_size=0)
        send_batch(client, topic, sent)
        threading.Thread(target=_receive, args=(consumer, received), daemon=True).start()
        deadline = time.monotonic() + _SECONDS
        while len(received) < _MESSAGES and time.monotonic() < deadline:
            time.sleep(0.05)
        return Counts.of(sent, list(received))
    finally:
        client.close()


def _receive(consumer: Any, received: list[str]) -> None:
    with contextlib.suppress(official.PulsarException):
        while True:
            received.append(label(consumer.receive()))
