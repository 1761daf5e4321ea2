"""`has_message_available()` returns False, as at the end of the topic, if the connection ends during the call."""

from ._support import Client, Counts, Env, FaultProxy, cut_during, label, numbered, send_all


def run(pulsar: Client, env: Env) -> Counts:
    """Read while messages are available; the connection ends while the first answer is in flight."""
    topic, sent, read = env.topic(), numbered(10), []
    with FaultProxy(env.service_url) as proxy, env.opened(pulsar, proxy) as client, env.opened(pulsar) as direct:
        producer = direct.create_producer(topic)
        reader = client.create_reader(topic, pulsar.MessageId.earliest)
        with cut_during(proxy):
            send_all(producer, sent)
            while reader.has_message_available():
                read.append(label(reader.read_next()))
    return Counts.of(sent, read)
