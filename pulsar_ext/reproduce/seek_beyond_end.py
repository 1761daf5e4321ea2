"""A seek to an entry beyond the topic's end silently drops every message up to that entry."""

import contextlib

import pulsar as official

from ._support import END, Client, Counts, Env, labels, send_all


def run(pulsar: Client, env: Env) -> Counts:
    """Seek a few entries too far, ignore an error, and receive later messages."""
    topic = env.topic()
    with env.opened(pulsar) as client:
        consumer = client.subscribe(topic, "s")
        producer = client.create_producer(topic)
        last = producer.send(b"before")
        consumer.acknowledge(consumer.receive())
        with contextlib.suppress(official.PulsarException):
            consumer.seek(pulsar.MessageId(last.partition(), last.ledger_id(), last.entry_id() + 3))
        sent = ["first", "second", "third", "fourth", "fifth"]
        send_all(producer, [*sent, END])
        return Counts.of(sent, labels(consumer.receive))
