"""The connection ends amid `has_message_available()`, which then says that there is nothing more to read."""

from __future__ import annotations

from ._support import Client, Counts, Env, FaultProxy, cut_amid

CLAIM = "a reader's loop ends when everything is read, not when the connection ends"
REFERENCE = "docs/reproduce.md#reader-ends-early"

_MESSAGES = 10


def run(pulsar: Client, env: Env) -> Counts:
    """Read while there is something to read, as the connection is lost while the first answer is on its way."""
    topic, direct = env.topic(), env.client(pulsar)
    sent = [f"message {number}" for number in range(_MESSAGES)]
    with FaultProxy.to(env.service_url) as proxy:
        client = env.client(pulsar, proxy.service_url)
        try:
            producer = direct.create_producer(topic)
            reader = client.create_reader(topic, pulsar.MessageId.earliest)
            read = []
            with cut_amid(proxy):
                for label in sent:
                    producer.send(label.encode())
                while reader.has_message_available():
                    read.append(reader.read_next().data().decode())
        finally:
            client.close()
            direct.close()
    return Counts.of(sent, read)
