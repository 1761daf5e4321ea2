"""Acknowledging a chunked message by its deserialized id leaves its middle chunk in the backlog for ever."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._chunk_ack import acknowledge_by
from ._scenario import Counts, Scenario

if TYPE_CHECKING:
    from types import ModuleType

    from ._env import Env

__all__ = ["SCENARIO"]


def run(pulsar: ModuleType, env: Env) -> Counts:
    """Acknowledge by an id that went through bytes."""
    return acknowledge_by(lambda message_id: pulsar.MessageId.deserialize(message_id.serialize()), pulsar, env)


SCENARIO = Scenario(
    name="chunk-ack-deserialized",
    claim="acknowledging a chunked message by its deserialized id acknowledges all of its chunks",
    reference="https://github.com/apache/pulsar/issues/26395",
    run=run,
    profile="small-chunks",
)
