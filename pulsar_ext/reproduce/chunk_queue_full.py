"""A producer of chunked messages with `block_if_queue_full` deadlocks as soon as its queue is full."""

from ._support import Client, Counts, Env, numbered

_MESSAGES, _FEWEST = 20, 4


def send(pulsar: Client, env: Env, topic: str, labels: list[str]) -> None:
    """Send more chunks than the queue holds."""
    with env.opened(pulsar) as client:
        producer = client.create_producer(
            topic, chunking_enabled=True, max_pending_messages=5, block_if_queue_full=True
        )
        for label in labels:
            producer.send_async(env.chunked(label), lambda _result, _message_id: None)
        producer.flush()


def run(pulsar: Client, env: Env) -> Counts:
    """Send in a separate process, which may hang, and count the stored messages."""
    topic, sent = env.topic(), numbered(env.count(_MESSAGES, _FEWEST))
    outcome = env.run_isolated(pulsar, send, topic, sent)
    return Counts.of(sent, env.stored(topic), ended=outcome.ended)
