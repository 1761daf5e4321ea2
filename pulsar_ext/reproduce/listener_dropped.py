"""A listener is no longer called if the program keeps neither its client nor its consumer in a variable."""

import gc

from ._support import Client, Counts, Env, label, numbered, send_all, wait_until


def _listen(pulsar: Client, env: Env, topic: str, received: list[str]) -> None:
    """Subscribe with a listener in a function, and keep no reference."""
    client = env.client(pulsar)
    client.subscribe(topic, "listener", message_listener=lambda _, message: received.append(label(message)))


def run(pulsar: Client, env: Env) -> Counts:
    """Send after a garbage collection, and count the calls of the listener."""
    topic, sent = env.topic(), numbered(5)
    received: list[str] = []
    _listen(pulsar, env, topic, received)
    gc.collect()
    with env.opened(pulsar) as client:
        send_all(client.create_producer(topic), sent)
        wait_until(lambda: len(received) >= len(sent), 5.0)
    return Counts.of(sent, received)
