"""What the two scenarios about programs that end after they acknowledged share: they differ in how a program ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from ._apart import Outcome
    from ._env import Env

__all__ = ["run_programs"]


def run_programs(
    pulsar: ModuleType, env: Env, program: Callable[..., object], *, programs: int, messages: int, seconds: float
) -> tuple[list[Outcome], int]:
    """Send messages, and let programs receive them all, each on a subscription of its own.

    Several, because one may be lucky: acknowledgements are sent every 100 ms, and it may just have been time.

    Returns:
        How each program ended, and how many messages the broker's cursors will have delivered again.
    """
    topic, client = env.topic(), env.client(pulsar)
    names = [f"program-{number}" for number in range(programs)]
    for name in names:
        env.admin.create_subscription(topic, name, "earliest")
    try:
        producer = client.create_producer(topic)
        for number in range(messages):
            producer.send(f"message {number}".encode())
    finally:
        client.close()
    outcomes = [env.apart(pulsar, program, topic, name, seconds=seconds) for name in names]
    return outcomes, sum(env.left_over(topic, name)[0] for name in names)
