"""A program aborts if it ends while one of its daemon threads is sending."""

import contextlib
import threading

from ._support import KEPT, Client, Counts, Env


def end_while_sending(pulsar: Client, env: Env, topic: str) -> None:
    """End the program while a daemon thread is sending."""
    client = env.client(pulsar)
    producer = client.create_producer(topic)
    KEPT.extend((client, producer))
    sent = threading.Semaphore(0)

    def send() -> None:
        with contextlib.suppress(Exception):  # only the end of the program counts
            while True:
                producer.send(b"heartbeat")
                sent.release()

    threading.Thread(target=send, daemon=True).start()
    for _ in range(20):
        sent.acquire()


def run(pulsar: Client, env: Env) -> Counts:
    """Run such a process."""
    return Counts(ended=env.run_isolated(pulsar, end_while_sending, env.topic()).ended)
