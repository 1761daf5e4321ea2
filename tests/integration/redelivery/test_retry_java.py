"""Retry letters go back and forth between this library and the Java client, and say the same of their messages."""

from __future__ import annotations

import pytest
from acked import send_batches
from chunked import THREE_CHUNKS, drain, index_of, payload
from java_peer import run_java
from reach import Reach

import pulsar_ext as pulsar
from pulsar_ext.testing.backend import process_problem

BOTH_CLIENTS = True

PROBLEM = process_problem()
pytestmark = pytest.mark.skipif(PROBLEM is not None, reason=f"the Java client cannot be run here: {PROBLEM}")

MESSAGES, MOST = 7, 3
LENGTHS = dict.fromkeys(map(str, range(MESSAGES)), "20") | {"5": str(THREE_CHUNKS)}


@pytest.fixture
def java(broker):
    """Have the Java client take a round: receive each message, and consume it later, or only receive it."""

    def take(topic, type_, most=MOST):
        lines = run_java("Reconsume", Reach.of(broker).java_settings(), topic, "s", type_, most, MESSAGES)
        fields = [line.split("\t")[1:] for line in lines if line.startswith("ID\t")]
        assert {name: length for name, length, *_ in fields} == LENGTHS
        return {name: tuple(rest) for name, _, *rest in fields}

    return take


@pytest.fixture
def ours(client):
    """Take a round with this library, and give of each message what the Java program prints."""

    def take(topic, type_, most=MOST):
        kind = {"Key_Shared": pulsar.ConsumerType.KeyShared}.get(type_) or pulsar.ConsumerType.__members__[type_]
        options = {"enable_retry": True, "dead_letter_policy": pulsar.ConsumerDeadLetterPolicy(most)} if most else {}
        consumer = client.subscribe(topic, "s", kind, initial_position=pulsar.InitialPosition.Earliest, **options)
        found = {}
        for message in drain(consumer.receive, MESSAGES):
            properties = " ".join(f"{name}={value}" for name, value in sorted(message.properties().items()))
            key, time = message.partition_key() or "null", str(message.event_timestamp())
            found[str(index_of(message))] = (key, time, message.topic_name(), properties)
            if most:
                consumer.reconsume_later(message, 100, {"by": "java"})
            else:
                consumer.acknowledge(message)
        consumer.close()
        return found

    return take


def send_each_kind(client, topic):
    """Send a batch of five, a chunked message and a plain one: 0 to 6."""
    send_batches(client, topic, 1)
    client.create_producer(topic, chunking_enabled=True).send(
        payload(5), properties={"kept": "yes"}, partition_key="key", event_timestamp=7
    )
    client.create_producer(topic).send(payload(6, 20))


@pytest.mark.parametrize("type_", ["Shared", "Key_Shared", "Failover"])
def test_letters_go_back_and_forth(client, topic, java, ours, type_):
    """Java and this library take turns on one subscription: each sees the other's letters, then the dead letters."""
    client.subscribe(topic, "s", pulsar.ConsumerType.Exclusive).close()
    send_each_kind(client, topic)
    first = ours(topic, type_)
    for times, take in enumerate([java, ours, java], 1):
        letters = take(topic, type_)
        assert len(letters) == MESSAGES
        for name, (key, time, where, properties) in letters.items():
            assert (key, time) == first[name][:2]
            assert where == f"{topic}-s-RETRY"
            assert f"RECONSUMETIMES={times} " in properties + " "
    dead = ours(f"{topic}-s-DLQ", "Exclusive", most=0)
    assert len(dead) == MESSAGES
    assert all(f"RECONSUMETIMES={MOST + 1}" in properties.split() for *_, properties in dead.values())


@pytest.mark.parametrize("partitions", [0, 2])
def test_both_write_the_same_letters(client, pulsar_topic_factory, broker, java, ours, partitions):
    """Java's own letters and ours, of messages sent in the same way, differ in the names of topics and ids alone."""
    seen = []
    for take in (java, ours):
        topic = pulsar_topic_factory("topic", partitions=partitions, broker=broker)
        client.subscribe(topic, "s").close()
        send_each_kind(client, topic)
        take(topic, "Shared")
        letters = java(f"{topic}-s-RETRY", "Exclusive", 0) if take is ours else ours(f"{topic}-s-RETRY", "Shared", 0)
        seen.append({name: _general(fields, topic) for name, fields in letters.items()})
    assert seen[0] == seen[1]


def _general(fields, topic):
    """Leave the names of ledgers and of the topic out of what was printed."""
    key, time, where, properties = fields
    words = []
    for word in properties.replace(topic, "TOPIC").split():
        name, _, value = word.partition("=")
        shape = [len(one.split(":")) for one in value.split(";")] if name.startswith("ORIGIN") else value
        words.append((name, shape))
    return key, time, where.replace(topic, "TOPIC"), words
