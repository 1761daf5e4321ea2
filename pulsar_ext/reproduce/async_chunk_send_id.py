"""The id that an awaited send of a chunked message returns lacks the first chunk."""

import asyncio

from ._support import END, Client, Counts, Env, labels


def run(pulsar: Client, env: Env) -> Counts:
    """Send a chunked message, store its id as bytes, and start a reader there."""
    topic = env.topic()

    async def send() -> bytes:
        client = env.async_client(pulsar)
        try:
            producer = await client.create_producer(topic, batching_enabled=False, chunking_enabled=True)
            message_id = await producer.send(env.chunked("first"))
            await producer.send(b"second")
            await producer.send(END.encode())
            data: bytes = message_id.serialize()
            return data
        finally:
            await client.close()

    start = pulsar.MessageId.deserialize(asyncio.run(send()))
    with env.opened(pulsar) as client:
        reader = client.create_reader(topic, start, start_message_id_inclusive=True)
        return Counts.of(["first", "second"], labels(reader.read_next))
