"""Sequence id 0 is treated as missing, so its message is stored again when it is resent."""

from ._support import Client, Counts, Env, send_numbers


def run(pulsar: Client, env: Env) -> Counts:
    """Send 0, 1 and 2, one after the other; resume from 0 under the same name."""
    topic = env.topic()
    for _ in range(2):
        send_numbers(pulsar, env, topic, range(3), batched=False)
    return Counts.of([str(number) for number in range(3)], env.stored(topic))
