"""`has_message_available()` returns False, as at the end of the topic, if the connection ends during the call."""

from __future__ import annotations

from ._support import Client, Counts, Env, FaultProxy, cut_during

CLAIM = "a reader's loop ends when everything is read, not when the connection ends"
REFERENCE = "docs/reproduce.md#reader-ends-early"

_MESSAGES = 10


def run(pulsar: Client, env: Env) -> Counts:
    """Read while messages are available; the connection ends while the first answer is in flight."""
    topic, direct = env.topic(), env.client(pulsar)
    sent = [f"message {number}" for number in range(_MESSAGES)]
    with FaultProxy.to(env.service_url) as proxy:
        client = env.client(pulsar, proxy.service_url)
        try:
            producer = direct.create_producer(topic)
            reader = client.create_reader(topic, pulsar.MessageId.earliest)
            read = []
            with cut_during(proxy):
                for label in sent:
                    producer.send(label.encode())
                while reader.has_message_available():
                    read.append(reader.read_next().data().decode())
        finally:
            client.close()
            direct.close()
    return Counts.of(sent, read)
