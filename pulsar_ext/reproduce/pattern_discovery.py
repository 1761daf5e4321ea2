"""A consumer of a pattern discovers new topics once a minute, whatever period is configured."""

import re

from ._support import Client, Counts, Env, labels, numbered, send_all

_PERIOD_SECONDS, _PERIODS = 1, 10


def run(pulsar: Client, env: Env) -> Counts:
    """Subscribe to a pattern with a period of one second, create a matching topic, and receive for ten seconds."""
    topic, expected = env.topic(), numbered(3)
    with env.opened(pulsar) as client:
        consumer = client.subscribe(
            re.compile(f"{topic}.*"),
            "s",
            initial_position=pulsar.InitialPosition.Earliest,
            pattern_auto_discovery_period=_PERIOD_SECONDS,
        )
        send_all(client.create_producer(f"{topic}-new"), expected)
        arrived = list(labels(consumer.receive, millis=_PERIODS * _PERIOD_SECONDS * 1_000))
    return Counts.of(expected, arrived)
