"""Retry letters of this library and of the Java client: each reads the other's, and both write the same properties."""

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

MESSAGES, MAX_RETRIES = 7, 3
LENGTHS = dict.fromkeys(map(str, range(MESSAGES)), "20") | {"5": str(THREE_CHUNKS)}


@pytest.fixture
def java(broker):
    """Return a function that receives each message with the Java client, and retries it if `max_retries` is not 0."""

    def run_round(topic, type_, max_retries=MAX_RETRIES):
        lines = run_java("Reconsume", Reach.of(broker).java_settings(), topic, "s", type_, max_retries, MESSAGES)
        fields = [line.split("\t")[1:] for line in lines if line.startswith("ID\t")]
        assert {name: length for name, length, *_ in fields} == LENGTHS
        return {name: tuple(rest) for name, _, *rest in fields}

    return run_round


@pytest.fixture
def ours(client):
    """Return a function that does so with this library, and returns what the Java program prints."""

    def run_round(topic, type_, max_retries=MAX_RETRIES):
        kind = {"Key_Shared": pulsar.ConsumerType.KeyShared}.get(type_) or pulsar.ConsumerType.__members__[type_]
        options = (
            {"enable_retry": True, "dead_letter_policy": pulsar.ConsumerDeadLetterPolicy(max_retries)}
            if max_retries
            else {}
        )
        consumer = client.subscribe(topic, "s", kind, initial_position=pulsar.InitialPosition.Earliest, **options)
        found = {}
        for message in drain(consumer.receive, MESSAGES):
            properties = " ".join(f"{name}={value}" for name, value in sorted(message.properties().items()))
            key, time = message.partition_key() or "null", str(message.event_timestamp())
            found[str(index_of(message))] = (key, time, message.topic_name(), properties)
            if max_retries:
                consumer.reconsume_later(message, 100, {"by": "java"})
            else:
                consumer.acknowledge(message)
        consumer.close()
        return found

    return run_round


def send_each_kind(client, topic):
    """Send a batch of five, a chunked message and an unbatched one: 0 to 6."""
    send_batches(client, topic, 1)
    client.create_producer(topic, chunking_enabled=True).send(
        payload(5), properties={"kept": "yes"}, partition_key="key", event_timestamp=7
    )
    client.create_producer(topic).send(payload(6, 20))


@pytest.mark.parametrize("type_", ["Shared", "Key_Shared", "Failover"])
def test_java_and_python_read_each_others_letters(client, topic, java, ours, type_):
    """On one subscription, Java and this library in turn receive each other's letters, then the dead letters."""
    client.subscribe(topic, "s", pulsar.ConsumerType.Exclusive).close()
    send_each_kind(client, topic)
    first = ours(topic, type_)
    for times, run_round in enumerate([java, ours, java], 1):
        letters = run_round(topic, type_)
        assert len(letters) == MESSAGES
        for name, (key, time, letter_topic, properties) in letters.items():
            assert (key, time) == first[name][:2]
            assert letter_topic == f"{topic}-s-RETRY"
            assert f"RECONSUMETIMES={times} " in properties + " "
    dead = ours(f"{topic}-s-DLQ", "Exclusive", max_retries=0)
    assert len(dead) == MESSAGES
    assert all(f"RECONSUMETIMES={MAX_RETRIES + 1}" in properties.split() for *_, properties in dead.values())


@pytest.mark.parametrize("partitions", [0, 2])
def test_java_and_python_write_equal_letters(client, pulsar_topic_factory, broker, java, ours, partitions):
    """Letters of both, for equal messages, differ only in topics and ids."""
    seen = []
    for run_round in (java, ours):
        topic = pulsar_topic_factory("topic", partitions=partitions, broker=broker)
        client.subscribe(topic, "s").close()
        send_each_kind(client, topic)
        run_round(topic, "Shared")
        letters = (
            java(f"{topic}-s-RETRY", "Exclusive", 0) if run_round is ours else ours(f"{topic}-s-RETRY", "Shared", 0)
        )
        seen.append({name: _general(fields, topic) for name, fields in letters.items()})
    assert seen[0] == seen[1]


def _general(fields, topic):
    """Return printed fields without the ids and the name of the topic."""
    key, time, letter_topic, properties = fields
    words = []
    for word in properties.replace(topic, "TOPIC").split():
        name, _, value = word.partition("=")
        shape = [len(one.split(":")) for one in value.split(";")] if name.startswith("ORIGIN") else value
        words.append((name, shape))
    return key, time, letter_topic.replace(topic, "TOPIC"), words
