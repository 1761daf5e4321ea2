"""An awaited seek to the beginning of a topic, or to a received id, raises."""

import asyncio

from ._support import END, Client, Counts, Env, label


def run(pulsar: Client, env: Env) -> Counts:
    """Read a topic to its end, seek to its beginning, and read it again."""
    topic, sent = env.topic(), ["first", "second", "third"]

    async def read_again() -> Counts:
        client = env.async_client(pulsar)
        try:
            producer = await client.create_producer(topic)
            reader = await client.create_reader(topic, pulsar.MessageId.earliest)

            async def read() -> list[str]:
                found: list[str] = []
                while (text := label(await asyncio.wait_for(reader.read_next(), 10.0))) != END:
                    found.append(text)
                return found

            for text in (*sent, END):
                await producer.send(text.encode())
            await read()
            try:
                await reader.seek(pulsar.MessageId.earliest)
            except (TypeError, ValueError, pulsar.PulsarException) as error:
                return Counts.of(sent, [], note=f"seek raised {type(error).__name__}")
            return Counts.of(sent, await read())
        finally:
            await client.close()

    return asyncio.run(read_again())
