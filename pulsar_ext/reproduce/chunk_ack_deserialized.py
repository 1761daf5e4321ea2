"""Acknowledging a chunked message by its deserialized id leaves its middle chunk in the backlog for ever."""

from __future__ import annotations

from ._support import Client, Counts, Env, Scenario, acknowledge_by


def run(pulsar: Client, env: Env) -> Counts:
    """Acknowledge by an id that went through bytes."""
    return acknowledge_by(lambda message_id: pulsar.MessageId.deserialize(message_id.serialize()), pulsar, env)


SCENARIO = Scenario(
    name="chunk-ack-deserialized",
    claim="acknowledging a chunked message by its deserialized id acknowledges all of its chunks",
    reference="https://github.com/apache/pulsar/issues/26395",
    run=run,
    profile="small-chunks",
)
