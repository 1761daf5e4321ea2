"""A Ctrl-C while `receive()` waits loses the next message."""

import os
import signal
import threading

from ._support import END, Client, Counts, Env, labels, send_all


def run(pulsar: Client, env: Env) -> Counts:
    """Interrupt a waiting receive, catch the exception, and receive later messages."""
    topic = env.topic()
    # SIGINT may be ignored in a background job.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with env.opened(pulsar) as client:
        consumer = client.subscribe(topic, "s")
        producer = client.create_producer(topic)
        ctrl_c = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
        ctrl_c.start()
        try:
            consumer.receive()
        except (KeyboardInterrupt, pulsar.Interrupted):
            ctrl_c.join()
        sent = ["first", "second", "third"]
        send_all(producer, [*sent, END])
        return Counts.of(sent, labels(consumer.receive))
