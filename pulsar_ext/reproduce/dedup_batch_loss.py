"""A batch whose first message is already persisted is dropped entirely, with its new messages."""

from ._support import Client, Counts, Env, send_numbers


def run(pulsar: Client, env: Env) -> Counts:
    """Send 1 to 6 in a batch; resume from 1 under the same name, and send up to 13 in one batch."""
    topic = env.topic()
    send_numbers(pulsar, env, topic, range(1, 7), batched=True)
    results = send_numbers(pulsar, env, topic, range(1, 14), batched=True)
    expected, stored = [str(number) for number in range(1, 14)], env.stored(topic)
    ok = sum(result == pulsar.Result.Ok for result in results)
    return Counts.of(expected, stored, note="all reported Ok" if ok == len(expected) else "")
