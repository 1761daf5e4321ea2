"""Ids of this library and of the Java client: bytes, text, order, and the message of each."""

import random
from dataclasses import dataclass

import pulsar
import pytest
from java_peer import run_java
from reach import Reach

from pulsar_ext import ChunkMessageId, MessageId
from pulsar_ext.testing.backend import process_problem

BOTH_CLIENTS = True

PROBLEM = process_problem()
pytestmark = pytest.mark.skipif(PROBLEM is not None, reason=f"the Java client cannot be run here: {PROBLEM}")

RECEIVE_MILLIS = 10_000
CHUNKED_SIZE = 250_000
KINDS = {"plain", "batch", "chunked", "partitioned"}


@dataclass(frozen=True)
class Sent:
    """Sent message: its kind, its topic or partition, the start of its payload, its id as bytes and text."""

    kind: str
    topic: str
    name: str
    data: bytes
    text: str

    @property
    def description(self):
        """Output of the Java program about the message."""
        return f"{self.name} {len(payload(self.name, chunked=';' in self.text))}"


@pytest.fixture
def broker(pulsar_broker_factory):
    return pulsar_broker_factory("small-chunks")


@pytest.fixture
def client(broker, client_factory):
    return client_factory(broker)


@pytest.fixture
def topics(broker, pulsar_topic_factory):
    return pulsar_topic_factory(broker=broker), pulsar_topic_factory("parts", partitions=3, broker=broker)


@pytest.fixture
def sent_by_java(broker, topics):
    return [
        Sent(kind, _topic_of(topics, kind, text), name, bytes.fromhex(data), text)
        for kind, name, data, text in ids_of_java("MakeIds", Reach.of(broker).java_settings(), *topics)
    ]


@pytest.fixture
def sent_by_us(client, topics):
    plain, parts = topics
    sent = []

    def note(kind, name, message_id):
        text = message_id.to_text()
        sent.append(Sent(kind, _topic_of(topics, kind, text), name, message_id.serialize(), text))

    with (
        client.create_producer(plain) as singles,
        client.create_producer(plain, chunking_enabled=True) as chunked,
        client.create_producer(plain, batching_enabled=True, batching_max_publish_delay_ms=60_000) as batches,
        client.create_producer(parts, chunking_enabled=True) as spread,
    ):
        for number in range(2):
            note("plain", f"plain-{number}", singles.send(payload(f"plain-{number}")))
            name = f"chunked-{number}"
            note("chunked", name, chunked.send(payload(name, chunked=True)))
        for name in ("batch-0", "batch-1", "batch-2"):
            batches.send_async(payload(name), lambda _, message_id, name=name: note("batch", name, message_id))
        batches.flush()
        for number in range(6):
            name = f"part-{number}"
            note("partitioned", name, spread.send(payload(name, chunked=number >= 3)))
    return sent


def payload(name, *, chunked=False):
    return name.encode() + b";" + b"x" * (CHUNKED_SIZE if chunked else 0)


def ids_of_java(program, *arguments, lines=()):
    """Run a Java program, and return the fields of the ids that it prints."""
    output = run_java(program, *arguments, lines=lines)
    return [line.split("\t")[1:] for line in output if line.startswith("ID\t")]


def _topic_of(topics, kind, text):
    return f"{topics[1]}-partition-{text.split(':')[-1]}" if kind == "partitioned" else topics[0]


@pytest.mark.core(slow="Java is started")
def test_reads_java_ids(sent_by_java):
    """Bytes and text of Java ids of every kind are parsed into equal ids, which return both unchanged."""
    assert {sent.kind for sent in sent_by_java} == KINDS
    for sent in sent_by_java:
        read = MessageId.deserialize(sent.data)
        assert read.serialize() == sent.data
        assert read.to_text() == sent.text
        assert MessageId.parse(sent.text) == read
        assert hash(MessageId.parse(sent.text)) == hash(read)
        assert isinstance(read, ChunkMessageId) == (";" in sent.text)


def test_orders_as_java(sent_by_java):
    """Every pair of shuffled real and made-up ids compares as in Java, and sorting produces Java's order."""
    ids = [MessageId.deserialize(sent.data) for sent in sent_by_java]
    ids += [MessageId(partition, 7, 3, batch) for partition in (-1, 0, 2) for batch in (-1, 0, 1, 11)]
    ids += [MessageId(-1, ledger, entry) for ledger in (0, 7, 1 << 40) for entry in (0, 2, 4, 1 << 33)]
    ids += [ChunkMessageId(MessageId(2, 7, 1), MessageId(2, 7, 3)), MessageId.earliest, MessageId.latest]
    random.Random(20).shuffle(ids)

    compared = ids_of_java("CompareIds", lines=[one.serialize().hex() for one in ids])

    assert [one.to_text() for one in sorted(ids)] == [text for _, text, _ in compared]
    for one, (text, _, signs) in zip(ids, compared, strict=True):
        assert one.to_text() == text
        assert "".join("<=>"[(one > other) - (one < other) + 1] for other in ids) == signs
        assert [one == other for other in ids] == [sign == "=" for sign in signs]


@pytest.mark.twin_on_demand
def test_java_ids_find_their_messages(client, sent_by_java):
    """A reader started and a consumer sought by a Java id, from its bytes or its text, receive its message."""
    for sent in sent_by_java:
        expected = payload(sent.name, chunked=";" in sent.text)
        for message_id in (MessageId.deserialize(sent.data), MessageId.parse(sent.text)):
            with client.create_reader(sent.topic, message_id, start_message_id_inclusive=True) as reader:
                assert reader.read_next(RECEIVE_MILLIS).data() == expected
            with client.subscribe(
                sent.topic,
                "ours",
                initial_position=pulsar.InitialPosition.Earliest,
                start_message_id_inclusive=True,
            ) as consumer:
                consumer.seek(message_id)
                found = consumer.receive(RECEIVE_MILLIS)
                assert found.data() == expected
                assert found.message_id() == message_id
                assert found.message_id().to_text() == sent.text


def test_java_follows_our_ids(broker, sent_by_us):
    """Java reads our ids of every kind, writes the same text and an equal id, and receives each whole message."""
    assert {sent.kind for sent in sent_by_us} == KINDS
    found = ids_of_java(
        "ReadIds", Reach.of(broker).java_settings(), lines=[f"{sent.topic}\t{sent.data.hex()}" for sent in sent_by_us]
    )
    for sent, (text, data, read, sought) in zip(sent_by_us, found, strict=True):
        assert text == sent.text
        assert MessageId.deserialize(bytes.fromhex(data)) == MessageId.deserialize(sent.data)
        assert read == sent.description
        assert sought == sent.description
