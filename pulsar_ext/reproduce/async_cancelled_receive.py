"""A cancelled awaited receive, for example after a timeout, loses the next message."""

import asyncio
import contextlib

from ._support import END, Client, Counts, Env, label


def run(pulsar: Client, env: Env) -> Counts:
    """Time out a read before each send, and then read all messages."""
    topic, sent = env.topic(), [f"m{number}" for number in range(10)]

    async def read() -> Counts:
        client = env.async_client(pulsar)
        found: list[str] = []
        try:
            reader = await client.create_reader(topic, pulsar.MessageId.earliest)
            producer = await client.create_producer(topic)
            for text in (*sent, END):
                with contextlib.suppress(TimeoutError):
                    found.append(label(await asyncio.wait_for(reader.read_next(), 0.05)))
                await producer.send(text.encode())
            with contextlib.suppress(TimeoutError):
                while not found or found[-1] != END:
                    found.append(label(await asyncio.wait_for(reader.read_next(), 10.0)))
            return Counts.of([*sent, END], found)
        finally:
            await client.close()

    return asyncio.run(read())
