"""The connection ends amid `has_message_available()`, which then says that there is nothing more to read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulsar_ext.testing import FaultProxy

from ._env import cut_amid
from ._scenario import Counts, Scenario

if TYPE_CHECKING:
    from types import ModuleType

    from ._env import Env

__all__ = ["SCENARIO"]

_MESSAGES = 10


def run(pulsar: ModuleType, env: Env) -> Counts:
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


SCENARIO = Scenario(
    name="reader-ends-early",
    claim="a reader's loop ends when everything is read, not when the connection ends",
    reference="docs/reproduce.md#reader-ends-early",
    run=run,
)
