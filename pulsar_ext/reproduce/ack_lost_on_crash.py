"""A killed program receives acknowledged messages again: it cannot know which acknowledgements arrived."""

import os
import signal

from ._support import RECEIVE_MILLIS, Client, Counts, Env, run_programs

_MESSAGES = 20
_PROGRAMS = 5


def acknowledge_and_be_killed(pulsar: Client, env: Env, topic: str, subscription: str) -> None:
    """Acknowledge all messages, confirmed if the client supports that, and be killed right after."""
    consumer = env.client(pulsar).subscribe(topic, subscription)
    for _ in range(_MESSAGES):
        consumer.acknowledge(consumer.receive(RECEIVE_MILLIS))
    if hasattr(consumer, "flush_acks"):
        consumer.flush_acks(confirm=True)
    os.kill(os.getpid(), signal.SIGKILL)


def run(pulsar: Client, env: Env) -> Counts:
    """Run such programs, and count the messages that the broker's cursors will redeliver."""
    _, again = run_programs(
        pulsar, env, acknowledge_and_be_killed, programs=_PROGRAMS, messages=_MESSAGES, seconds=20.0
    )
    sent = _MESSAGES * _PROGRAMS
    return Counts(sent, sent, duplicated=again)
