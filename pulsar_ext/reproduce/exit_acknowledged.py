"""A program that ends without close() loses its last acknowledgements, and receives those messages again."""

from ._support import KEPT, RECEIVE_MILLIS, Client, Counts, Env, run_programs

_MESSAGES = 10
_PROGRAMS = 10


def acknowledge_and_end(pulsar: Client, env: Env, topic: str, subscription: str) -> int:
    """Receive and acknowledge all messages, and end the program."""
    client = env.client(pulsar)
    consumer = client.subscribe(topic, subscription)
    received = [consumer.receive(RECEIVE_MILLIS) for _ in range(_MESSAGES)]
    KEPT.extend((client, consumer))
    for message in received:
        consumer.acknowledge(message)
    return len(received)


def run(pulsar: Client, env: Env) -> Counts:
    """Run such programs, and count the messages that the broker's cursors will redeliver."""
    outcomes, again = run_programs(pulsar, env, acknowledge_and_end, programs=_PROGRAMS, messages=_MESSAGES)
    sent, delivered = _MESSAGES * _PROGRAMS, sum(outcome.value or 0 for outcome in outcomes)
    ended = next((outcome.ended for outcome in outcomes if outcome.ended), "")
    return Counts(sent, delivered, lost=sent - delivered, duplicated=again, ended=ended)
