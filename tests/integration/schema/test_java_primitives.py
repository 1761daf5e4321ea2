"""Java's primitive schemas, read by AutoConsumeSchema."""

from __future__ import annotations

from datetime import UTC, date, datetime, time

import pytest
from java_peer import run_java
from reach import Reach

import pulsar_ext as pulsar
from pulsar_ext.schema import AutoConsumeSchema, KeyValue

BOTH_CLIENTS = True

MOMENT = datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC)
VALUES = {
    "BOOLEAN": True,
    "INT32": -5,
    "DATE": MOMENT,
    "TIME": time(1),
    "TIMESTAMP": MOMENT,
    "INSTANT": MOMENT.replace(microsecond=123_456),
    "LOCAL_DATE": date(2030, 1, 2),
    "LOCAL_TIME": time(1, 2, 3, 4),
    "LOCAL_DATE_TIME": datetime(1900, 1, 2, 3, 4, 5, 6),  # noqa: DTZ001
    "inline": KeyValue(-5, True),  # noqa: FBT003
    "separated": KeyValue(date(2030, 1, 2), datetime(1970, 1, 1, tzinfo=UTC)),
    "no-value": KeyValue("k", None),
}


def test_java_primitives_are_auto_consumed(client, topic, broker):
    """Values of Java are read, also as parts of key-value messages, and as dead letters."""
    run_java("Primitives", Reach.of(broker).java_settings(), topic)
    for name, value in VALUES.items():
        policy = pulsar.ConsumerDeadLetterPolicy(1, f"{topic}{name}-DLQ")
        consumer = client.subscribe(
            topic + name,
            "s",
            pulsar.ConsumerType.Shared,
            schema=AutoConsumeSchema(),
            initial_position=pulsar.InitialPosition.Earliest,
            enable_retry=True,
            dead_letter_policy=policy,
        )
        message = consumer.receive(20_000)
        assert message.value() == value, name
        assert getattr(message.value(), "nanosecond", 0) == (789 if name == "INSTANT" else 0)
        consumer.send_dead_letter(message)
        letters = client.create_reader(f"{topic}{name}-DLQ", pulsar.MessageId.earliest, schema=AutoConsumeSchema())
        assert letters.read_next(20_000).value() == value, name
    with pytest.raises(pulsar.SchemaMismatch, match="schema of type BOOLEAN"):
        client.subscribe(f"{topic}BOOLEAN", "typed", schema=str)
