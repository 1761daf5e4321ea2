"""A seek to a chunked message whose chunks are in flight never delivers it."""

import contextlib

import pulsar as official

from ._support import Client, Counts, Env, label, numbered

_SEEKS, _CHUNKS = 8, 200


def run(pulsar: Client, env: Env) -> Counts:
    """Eight times: subscribe or open a reader, send a message of 200 chunks, and seek to it at once."""
    sent, received = numbered(_SEEKS), []
    with env.opened(pulsar) as client:
        for number, text in enumerate(sent):
            topic = env.topic()
            producer = client.create_producer(topic, chunking_enabled=True)
            if number % 2:
                handle = client.create_reader(topic, pulsar.MessageId.earliest, start_message_id_inclusive=True)
            else:
                handle = client.subscribe(topic, "s", start_message_id_inclusive=True)
            handle.seek(producer.send(env.chunked(text, _CHUNKS)))
            with contextlib.suppress(official.Timeout):
                received.append(label((handle.read_next if number % 2 else handle.receive)(3_000)))
            handle.close()
    return Counts.of(sent, received)
