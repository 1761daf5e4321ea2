"""The broker stores only a batch's first sequence id, so a resuming producer stores the other messages again."""

from ._support import Client, Counts, Env, send_numbers


def run(pulsar: Client, env: Env) -> Counts:
    """Send 1 to 6 in a batch; resume from 4 under the same name, and send up to 13 in one batch."""
    topic = env.topic()
    send_numbers(pulsar, env, topic, range(1, 7), batched=True)
    send_numbers(pulsar, env, topic, range(4, 14), batched=True)
    return Counts.of([str(number) for number in range(1, 14)], env.stored(topic))
