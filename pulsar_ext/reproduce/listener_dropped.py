"""A listener falls silent when the program keeps neither its client nor its consumer in a variable."""

from __future__ import annotations

import gc
import time

from ._support import Client, Counts, Env, label

CLAIM = "a listener hears every message, whether or not the program keeps its client in a variable"
REFERENCE = "docs/reproduce.md#listener-dropped"

_MESSAGES = 5
_SECONDS = 5.0


def _listen(pulsar: Client, env: Env, topic: str, heard: list[str]) -> None:
    """Set a listener up, as programs do in a function, and keep nothing."""
    client = env.client(pulsar)
    client.subscribe(topic, "listener", message_listener=lambda _, message: heard.append(label(message)))


def run(pulsar: Client, env: Env) -> Counts:
    """Send after the next garbage collection, and count what the listener was called with."""
    topic, sent = env.topic(), [f"message {number}" for number in range(_MESSAGES)]
    heard: list[str] = []
    _listen(pulsar, env, topic, heard)
    gc.collect()
    client = env.client(pulsar)
    try:
        producer = client.create_producer(topic)
        for text in sent:
            producer.send(text.encode())
        deadline = time.monotonic() + _SECONDS
        while len(heard) < len(sent) and time.monotonic() < deadline:
            time.sleep(0.05)
    finally:
        client.close()
    return Counts.of(sent, heard)
