"""Acknowledging a chunked message by an id rebuilt from numbers leaves all chunks but the last in the backlog."""

from ._support import Client, Counts, Env, acknowledge_by, rebuilt


def run(pulsar: Client, env: Env) -> Counts:
    """Acknowledge by an id that was stored as numbers."""
    return acknowledge_by(lambda message_id: rebuilt(pulsar, message_id), pulsar, env)
