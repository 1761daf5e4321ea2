"""Letters have the bytes of their message and the schema with which it was written."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, make_dataclass

import pytest
from chunked import THREE_CHUNKS
from java_peer import run_java
from reach import Reach

import pulsar_ext as pulsar
from pulsar_ext._wire.batch_payload import Base64Key
from pulsar_ext.schema import (
    AutoConsumeSchema,
    AvroSchema,
    GenericRecord,
    JsonSchema,
    KeyValue,
    KeyValueEncoding,
    KeyValueSchema,
)

BOTH_CLIENTS = True
SHARED = pulsar.ConsumerType.Shared
EARLIEST = pulsar.InitialPosition.Earliest

Old, New = (make_dataclass("Order", [(name, str) for name in names]) for names in (("city", "name"), ("name", "city")))
KEYED = KeyValueSchema(str, str, KeyValueEncoding.SEPARATED)
ANN = {"city": "Berlin", "name": "Ann"}


@dataclass
class Town:
    """A record with another name and other fields."""

    mayor: str


def subscribe(client, topic, schema=bytes, **options):
    """Subscribe with a policy of one retry before the dead letter."""
    policy = pulsar.ConsumerDeadLetterPolicy(1, f"{topic}-DLQ")
    return client.subscribe(topic, "s", SHARED, schema=schema, enable_retry=True, dead_letter_policy=policy, **options)


def dead_letters(client, topic, schema, count):
    """Read the values of dead letters with a schema."""
    reader = client.create_reader(f"{topic}-DLQ", pulsar.MessageId.earliest, schema=schema)
    return [reader.read_next(20_000).value() for _ in range(count)]


def fields_of(value):
    return dict(value) if isinstance(value, GenericRecord) else {name: getattr(value, name) for name in ANN}


@pytest.mark.core
@pytest.mark.parametrize("kind", [AvroSchema, JsonSchema])
@pytest.mark.parametrize("schema", [New, AutoConsumeSchema(), bytes])
def test_letters_keep_the_schema_of_their_message(client, topic, kind, schema):
    """Letters of a message with an older schema version, also chunked ones, have the message's values."""
    consumer = subscribe(client, topic, kind(New) if schema is New else schema, negative_ack_redelivery_delay_ms=100)
    sent = [ANN, {"city": "B" * THREE_CHUNKS, "name": "Ann"}, {"city": "Berlin", "name": "Eve"}]
    with client.create_producer(topic, schema=kind(Old), chunking_enabled=True) as producer:
        for fields in sent:
            producer.send(Old(**fields))
    retried, dead, nacked = (consumer.receive(20_000) for _ in range(3))
    consumer.send_dead_letter(dead)
    consumer.negative_acknowledge(nacked)
    consumer.negative_acknowledge(consumer.receive(20_000))
    consumer.reconsume_later(retried, 0)
    letter = consumer.receive(20_000)
    assert schema is bytes or fields_of(letter.value()) == ANN
    consumer.reconsume_later(letter, 0)
    for read in (kind(New), AutoConsumeSchema()):
        letters = dead_letters(client, topic, read, 3)
        assert sorted(map(fields_of, letters), key=str) == sorted(sent, key=str)


@pytest.mark.blocking_only("stops process() from its handler; the letters of an awaited handler are FastStream's")
def test_dead_letters_of_process_keep_their_schema(client, topic):
    """A dead letter of a handler without a schema is readable with the version that wrote the message."""
    consumer = subscribe(client, topic, initial_position=EARLIEST)
    client.create_producer(topic, schema=Old).send(Old(**ANN))

    def handler(message):
        consumer.stop_processing()
        raise ValueError(message)

    consumer.process(handler, on_error=pulsar.DeadLetter())
    assert fields_of(dead_letters(client, topic, New, 1)[0]) == ANN


def test_rejected_schema_raises_or_warns(client, topic, caplog):
    """A typed consumer raises if the letter topic rejects its schema; one of bytes sends bytes with a warning."""
    client.create_producer(f"{topic}-DLQ", schema=Town).send(Town("Kai"))
    client.create_producer(topic, schema=Old).send(Old(**ANN))
    with contextlib.closing(subscribe(client, topic, New, initial_position=EARLIEST)) as consumer:
        message = consumer.receive(20_000)
        with pytest.raises(pulsar.SchemaMismatch, match="rejects the schema of version 0"):
            consumer.send_dead_letter(message)
    consumer = subscribe(client, topic)
    message = consumer.receive(20_000)
    consumer.send_dead_letter(message)
    assert "without the schema of their messages" in caplog.text
    assert dead_letters(client, topic, bytes, 2)[1] == message.data()
    assert dead_letters(client, topic, AutoConsumeSchema(), 2)[1] == message.data()


def test_letters_without_schema_use_the_consumers(client, topic):
    """The letter of a message without a schema has the consumer's schema, as in Java."""
    consumer = subscribe(client, topic, JsonSchema(New))
    client.create_producer(topic).send(b'{"city": "Berlin", "name": "Ann"}')
    consumer.send_dead_letter(consumer.receive(20_000))
    for schema in (JsonSchema(New), AutoConsumeSchema()):
        assert fields_of(dead_letters(client, topic, schema, 1)[0]) == ANN


def test_letters_of_key_values_keep_their_version(client, topic, broker):
    """Retry letters and dead letters of Java's Avro key-values have the message's values."""
    run_java("Schemas", Reach.of(broker).java_settings(), "send", topic)
    for name in ("keyed-avro", "separated"):
        consumer = subscribe(client, topic + name, AutoConsumeSchema(), initial_position=EARLIEST)
        message = consumer.receive(20_000)
        consumer.reconsume_later(message, 0)
        letter = consumer.receive(20_000)
        assert letter.value() == message.value()
        consumer.reconsume_later(letter, 0)
        assert dead_letters(client, topic + name, AutoConsumeSchema(), 1) == [message.value()]


@pytest.mark.parametrize("schema", [KEYED, bytes])
def test_letters_keep_separate_keys(client, broker, topic, schema):
    """A dead letter and a retry letter without a delay have the flag that the key is bytes."""
    consumer = subscribe(client, topic, schema)
    sent = [KeyValue("key1", "a"), KeyValue("k\u00e9y", None)]
    with client.create_producer(topic, schema=KEYED) as producer:
        for pair in sent:
            producer.send(pair)
    messages = [consumer.receive(20_000) for _ in sent]
    for message in messages:
        consumer.reconsume_later(message, 0)
    retried = [consumer.receive(20_000) for _ in sent]
    for letter in retried:
        consumer.send_dead_letter(letter)
    keys = {message.partition_key() for message in messages}
    assert {letter.partition_key() for letter in retried} == keys
    assert {pair.key: pair.value for pair in dead_letters(client, topic, KEYED, 2)} == {"key1": "a", "k\u00e9y": None}
    settings = Reach.of(broker).java_settings()
    for name in (f"{topic}-DLQ", f"{topic}-s-RETRY"):
        lines = run_java("KeyedLetters", settings, name, 2)
        found = sorted(line for line in lines if line.startswith("letter"))
        assert found == ["letter true key1 a", "letter true k\u00e9y null"]


@pytest.mark.blocking_only("is about what the C++ client cannot send")
def test_delayed_letters_have_base64_keys(client, broker, topic):
    """A delayed letter, and the letter of a message without a key-value schema, has the base64 text as key."""
    plain = f"{topic}-plain"
    pairs, others = subscribe(client, topic), subscribe(client, plain)
    with client.create_producer(topic, schema=KEYED) as producer:
        producer.send(KeyValue("key1", "a"))
    with client.create_producer(plain, batching_enabled=True) as producer:
        producer.send(b"b", partition_key=Base64Key.of(b"key2"))
    pairs.reconsume_later(pairs.receive(20_000), 100)
    others.send_dead_letter(others.receive(20_000))
    settings = Reach.of(broker).java_settings()
    names = f"{topic}-s-RETRY", f"{plain}-DLQ"
    lines = [line for name in names for line in run_java("KeyedLetters", settings, name, 1)]
    found = [line for line in lines if line.startswith("letter")]
    assert found == ["letter false a2V5MQ== a", "letter false a2V5Mg== b"]
