"""A program that ends with sends still pending and without close() loses them, and may be aborted."""

from __future__ import annotations

from ._support import Client, Counts, Env

CLAIM = "a program that ends without close() ends well, and what it has sent arrives"
REFERENCE = "docs/reproduce.md#exit-pending"

_MESSAGES = 100
_SECONDS = 15.0
_open: list[object] = []
"""What a program's main module holds to the end."""


def send_and_leave(pulsar: Client, env: Env, topic: str, labels: list[str]) -> None:
    """Send one batch, and come to the end of the program before the batch is due."""
    client = env.client(pulsar)
    producer = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=5_000)
    _open.extend((client, producer))
    for label in labels:
        producer.send_async(label.encode(), lambda _result, _message_id: None)


def run(pulsar: Client, env: Env) -> Counts:
    """Let a process end like that, and count what came to be stored."""
    topic, sent = env.topic(), [f"message {number}" for number in range(_MESSAGES)]
    outcome = env.apart(pulsar, send_and_leave, topic, sent, seconds=_SECONDS)
    return Counts.of(sent, env.stored(topic), ended=outcome.ended)
