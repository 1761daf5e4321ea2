"""A seek to a chunked message whose chunks are in flight never delivers it."""

from __future__ import annotations

import contextlib
from typing import Any

import pulsar as official

from ._support import Client, Counts, Env, label

CLAIM = "a seek to a chunked message delivers it, also while its chunks are in flight to the consumer or reader"
REFERENCE = "ConsumerImpl::processMessageChunk"
PROFILE = "small-chunks"

_SEEKS, _CHUNKS = 8, 200
_RECEIVE_MILLIS = 3_000


def run(pulsar: Client, env: Env) -> Counts:
    """Eight times: subscribe or open a reader, send a message of 200 chunks, and seek to it at once."""
    client = env.client(pulsar)
    sent = [f"message {number}" for number in range(_SEEKS)]
    received: list[str] = []
    try:
        for number, text in enumerate(sent):
            topic = env.topic()
            producer = client.create_producer(topic, chunking_enabled=True)
            handle, receive = _reader(pulsar, client, topic) if number % 2 else _consumer(client, topic)
            handle.seek(producer.send(env.chunked(text, _CHUNKS)))
            with contextlib.suppress(official.Timeout):
                received.append(label(receive(_RECEIVE_MILLIS)))
            handle.close()
    finally:
        client.close()
    return Counts.of(sent, received)


def _consumer(client: Any, topic: str) -> Any:
    consumer = client.subscribe(topic, "s", start_message_id_inclusive=True)
    return consumer, consumer.receive


def _reader(pulsar: Client, client: Any, topic: str) -> Any:
    reader = client.create_reader(topic, pulsar.MessageId.earliest, start_message_id_inclusive=True)
    return reader, reader.read_next
