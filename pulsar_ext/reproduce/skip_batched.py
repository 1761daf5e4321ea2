"""The broker's skip counts entries, so it skips batches instead of messages."""

from ._support import Client, Counts, Env, skip_and_receive

_BATCH = 10


def run(pulsar: Client, env: Env) -> Counts:
    """Send 20 batches of 10 messages, and skip 10 messages."""
    contents = [f"message {number}".encode() for number in range(20 * _BATCH)]
    return skip_and_receive(
        pulsar,
        env,
        contents,
        _BATCH,
        batching_enabled=True,
        batching_max_messages=_BATCH,
        batching_max_publish_delay_ms=10_000,
    )
