"""A message that the broker rejects is resent forever: its send never completes, and it blocks all later ones."""

import contextlib
import time

import pulsar as official

from ._support import Client, Counts, Env, numbered, send_all

_LARGEST_BYTES = 1000


def send(pulsar: Client, env: Env, topic: str, labels: list[str]) -> None:
    """Send a message that is too large for the topic, and then smaller ones."""
    with env.opened(pulsar) as client:
        producer = client.create_producer(topic, send_timeout_millis=3000)
        with contextlib.suppress(official.Timeout):
            producer.send(bytes(2 * _LARGEST_BYTES))
        send_all(producer, labels)


def run(pulsar: Client, env: Env) -> Counts:
    """Send in a separate process, which may hang, and count the stored messages."""
    topic, sent = env.topic(), numbered(5)
    env.admin.request("PUT", topic)
    env.admin.request("POST", f"{topic}/maxMessageSize", _LARGEST_BYTES)
    while env.admin.request("GET", f"{topic}/maxMessageSize") != _LARGEST_BYTES:
        time.sleep(0.1)
    env.admin.request("PUT", f"{topic}/unload")  # policies apply when the topic is loaded
    outcome = env.run_isolated(pulsar, send, topic, sent, seconds=20.0)
    # The connection may end again while the first of them is in flight; it is then sent twice, as by the official
    # client.
    return Counts.of(sent, list(dict.fromkeys(env.stored(topic))), ended=outcome.ended)
