"""A message that the broker refuses is sent again for ever: its send never ends, and nothing gets past it."""

from __future__ import annotations

import contextlib
import time

import pulsar as official

from ._support import Client, Counts, Env

CLAIM = "a send that the broker refuses fails within its send timeout, and the next ones arrive"
REFERENCE = "docs/reproduce.md#send-refused"

_LARGEST_BYTES = 1000
_TIMEOUT_MILLIS = 3000
_SECONDS = 20.0


def send(pulsar: Client, env: Env, topic: str, labels: list[str]) -> None:
    """Send what is too large for the topic, and then what is not."""
    client = env.client(pulsar)
    try:
        producer = client.create_producer(topic, send_timeout_millis=_TIMEOUT_MILLIS)
        with contextlib.suppress(official.Timeout):
            producer.send(bytes(2 * _LARGEST_BYTES))
        for label in labels:
            producer.send(label.encode())
    finally:
        client.close()


def run(pulsar: Client, env: Env) -> Counts:
    """Send in a process of its own, which may hang, and count what came to be stored."""
    topic, sent = env.topic(), [f"message {number}" for number in range(5)]
    env.admin.create_topic(topic)
    env.admin.set_max_message_size(topic, _LARGEST_BYTES)
    while env.admin.max_message_size(topic) != _LARGEST_BYTES:
        time.sleep(0.1)
    env.admin.unload(topic)  # it knows its policies as it is loaded
    outcome = env.apart(pulsar, send, topic, sent, seconds=_SECONDS)
    # The connection may end once more while the first of them is on its way, which is then sent twice, as officially.
    return Counts.of(sent, list(dict.fromkeys(env.stored(topic))), ended=outcome.ended)
