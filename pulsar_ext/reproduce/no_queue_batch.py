"""A consumer with a receiver queue of size 0 receives the first message of a batch, and then nothing."""

import contextlib
import threading

import pulsar as official

from ._support import Client, Counts, Env, label, numbered, send_batch, wait_until


def run(pulsar: Client, env: Env) -> Counts:
    """Send a batch of ten, and receive it without a queue on a thread, which may wait forever."""
    topic, sent = env.topic(), numbered(10)
    received: list[str] = []
    with env.opened(pulsar) as client:
        consumer = client.subscribe(topic, "s", receiver_queue_size=0)
        send_batch(client, topic, sent)
        threading.Thread(target=_receive, args=(consumer, received), daemon=True).start()
        wait_until(lambda: len(received) >= len(sent), 10.0)
        return Counts.of(sent, list(received))


def _receive(consumer: official.Consumer, received: list[str]) -> None:
    with contextlib.suppress(official.PulsarException):
        while True:
            received.append(label(consumer.receive()))
