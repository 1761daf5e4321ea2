"""A program that ends with pending sends and without close() loses them, and may abort."""

from ._support import KEPT, Client, Counts, Env, numbered


def send_and_end(pulsar: Client, env: Env, topic: str, labels: list[str]) -> None:
    """Send one batch, and end the program before the batch is due."""
    client = env.client(pulsar)
    producer = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=5_000)
    KEPT.extend((client, producer))
    for label in labels:
        producer.send_async(label.encode(), lambda _result, _message_id: None)


def run(pulsar: Client, env: Env) -> Counts:
    """Run such a process, and count the stored messages."""
    topic, sent = env.topic(), numbered(100)
    outcome = env.run_isolated(pulsar, send_and_end, topic, sent)
    return Counts.of(sent, env.stored(topic), ended=outcome.ended)
