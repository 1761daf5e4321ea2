"""The steps that the scenarios of deduplication share: send numbers under a name, and again under the same name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pulsar as official

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import ModuleType

    from ._env import Env

__all__ = ["send_numbers"]


def send_numbers(pulsar: ModuleType, env: Env, topic: str, numbers: Iterable[int], *, batched: bool) -> list[Any]:
    """Send numbers with themselves as sequence ids, as a program does that resumes; give the results of the sends."""
    more: dict[str, Any] = {} if pulsar is official else {"deduplication": True}
    if batched:
        more |= {"batching_enabled": True, "batching_max_publish_delay_ms": 1000}
    client = env.client(pulsar)
    try:
        producer = client.create_producer(topic, producer_name="resuming", send_timeout_millis=0, **more)
        results: list[Any] = []
        for number in numbers:
            producer.send_async(str(number).encode(), lambda result, _: results.append(result), sequence_id=number)
            if not batched:
                producer.flush()
        producer.flush()
        producer.close()
        return results
    finally:
        client.close()
