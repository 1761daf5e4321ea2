"""Acknowledging a chunked message by its deserialized id leaves its middle chunk in the backlog forever."""

from ._support import Client, Counts, Env, acknowledge_by


def run(pulsar: Client, env: Env) -> Counts:
    """Acknowledge by an id that was serialized and deserialized."""
    return acknowledge_by(lambda message_id: pulsar.MessageId.deserialize(message_id.serialize()), pulsar, env)
