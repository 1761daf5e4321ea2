"""Chunked messages on interleaved, compressed, partitioned, many, rolled over and trimmed topics.

Each test shows a result that docs/chunks.md promises.
"""

from __future__ import annotations

import itertools
import random
import re
import threading

import pytest
from awaited import blocking_of
from chunked import FORMS, THREE_CHUNKS, acknowledged, drain, eventually, index_of, payload

import pulsar_ext as pulsar
from pulsar_ext import ChunkMessageId, MessageId
from pulsar_ext.ids.position import Position
from pulsar_ext.testing import PROFILES, Profile

TINY_LEDGERS = Profile(
    "tiny-ledgers",
    "small chunks, and a new ledger after two entries",
    {**PROFILES["small-chunks"].settings, "managedLedgerMaxEntriesPerLedger": "2"},
)
EARLIEST = {"initial_position": pulsar.InitialPosition.Earliest}
BOTH_CLIENTS = True

STORED = ["deserialized", "rebuilt"]


@pytest.fixture
def interleaved(client, client_factory, broker, topic):
    """Ids of 12 chunked messages by content, whose chunks two producers wrote concurrently."""
    clients = [client, client_factory(broker)]
    for _ in range(10):
        ids = _write_concurrently(clients, topic)
        spans = sorted((i.first_chunk_message_id().entry_id(), i.entry_id()) for i in ids.values())
        if any(later[0] < earlier[1] for earlier, later in itertools.pairwise(spans)):
            return ids
        client.context.admin_api().delete_topic(topic, force=True)
    pytest.fail("in ten attempts, the producers' chunks did not interleave")


def _write_concurrently(clients, topic):
    ids = {}
    producers = [one.create_producer(topic, chunking_enabled=True, max_pending_messages=0) for one in clients]
    start = threading.Barrier(2)

    def write(producer, indexes):
        start.wait()
        for index in indexes:
            producer.send_async(
                payload(index, 1_500_000),
                lambda result, message_id, index=index: ids.update({index: (result, message_id)}),
            )
        producer.flush()

    threads = [threading.Thread(target=write, args=(producer, range(i, 12, 2))) for i, producer in enumerate(producers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for producer in producers:
        producer.close()
    assert all(result == pulsar.Result.Ok for result, _ in ids.values())
    return {index: message_id for index, (_, message_id) in ids.items()}


@pytest.mark.core
def test_interleaved_messages_resolve_to_own_chunks(client, topic, interleaved):
    """Each message's bare numbers resolve to its own first chunk, with another message's chunks in between."""
    for message_id in interleaved.values():
        assert client.resolve_message_id(topic, FORMS["rebuilt"](message_id)).to_text() == message_id.to_text()


@pytest.mark.parametrize("form", STORED)
def test_interleaved_messages_are_read_from_a_stored_id(client, topic, interleaved, form):
    """A start at any message reads it whole, and then each message that begins at or after its first chunk.

    A message that begins earlier and ends later cannot be assembled by any client that starts there.
    """
    for index, start in interleaved.items():
        first = start.first_chunk_message_id()
        whole = {i for i, other in interleaved.items() if other.first_chunk_message_id() >= first}
        with client.create_reader(topic, FORMS[form](start), start_message_id_inclusive=True) as reader:
            read = [index_of(message) for message in drain(reader.read_next, len(whole))]
        assert index in read
        assert sorted(read) == sorted(whole)


@pytest.mark.parametrize("form", STORED)
def test_exclusive_seek_excludes_the_one_message(client, topic, interleaved, form):
    """After a seek to any message, all that begin at or after its first chunk are delivered whole, without it."""
    consumer = client.subscribe(topic, "s")
    for index, sought in interleaved.items():
        consumer.seek(FORMS[form](sought))
        first = sought.first_chunk_message_id()
        after = {i for i, other in interleaved.items() if other.first_chunk_message_id() >= first} - {index}
        assert sorted(index_of(message) for message in drain(consumer.receive, len(after))) == sorted(after)


@pytest.mark.parametrize("form", STORED)
def test_interleaved_messages_are_acknowledged_one_by_one(client, topic, interleaved, form):
    """After acknowledging six of twelve by stored ids, exactly the other six are delivered whole, once."""
    with client.subscribe(topic, "s", pulsar.ConsumerType.Shared, **EARLIEST) as consumer:
        drain(consumer.receive, 12)
        for index in range(0, 12, 2):
            consumer.acknowledge(FORMS[form](interleaved[index]))
    with client.subscribe(topic, "s", pulsar.ConsumerType.Shared) as again:
        assert sorted(index_of(message) for message in drain(again.receive, 6)) == list(range(1, 12, 2))


def test_interleaved_messages_are_redelivered_alone(client, topic, interleaved):
    """A negative acknowledgement of one message on Shared redelivers that one and no other."""
    consumer = client.subscribe(
        topic, "s", pulsar.ConsumerType.Shared, negative_ack_redelivery_delay_ms=100, **EARLIEST
    )
    messages = {index_of(message): message for message in drain(consumer.receive, 12)}
    consumer.negative_acknowledge(messages[5])
    assert [index_of(message) for message in drain(consumer.receive, 1)] == [5]


@pytest.mark.core(slow="the broker does not answer a request for the headers of a compressed chunk")
@pytest.mark.parametrize("kind", ["LZ4", "ZLib", "ZSTD", "SNAPPY"])
def test_compressed_messages_in_chunks(client, topic, kind):
    """A compressed message whose compressed form needs chunks is read whole from a rebuilt id."""
    content = random.Random(1).randbytes(THREE_CHUNKS)
    producer = client.create_producer(
        topic, chunking_enabled=True, compression_type=getattr(pulsar.CompressionType, kind)
    )
    producer.send(payload(0))
    message_id = producer.send(content)
    assert isinstance(message_id, ChunkMessageId)
    with client.create_reader(topic, FORMS["rebuilt"](message_id), start_message_id_inclusive=True) as reader:
        assert reader.read_next(5000).data() == content


@pytest.mark.parametrize("form", STORED)
def test_batches_around_a_chunked_message(client, topic, form):
    """A start reads the chunked message and the batch after it; its acknowledgement does not affect the batches."""
    batched = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=1000)
    for index in range(10):
        batched.send_async(payload(index, 50), None)
    batched.flush()
    big = client.create_producer(topic, chunking_enabled=True).send(payload(10))
    for index in range(11, 21):
        batched.send_async(payload(index, 50), None)
    batched.flush()
    with client.create_reader(topic, FORMS[form](big), start_message_id_inclusive=True) as reader:
        assert [index_of(message) for message in drain(reader.read_next, 11)] == list(range(10, 21))
    with client.subscribe(topic, "s", **EARLIEST) as consumer:
        drain(consumer.receive, 21)
        consumer.acknowledge(FORMS[form](big))
    with client.subscribe(topic, "s") as again:
        assert [index_of(message) for message in drain(again.receive, 20)] == [*range(10), *range(11, 21)]


class TestSeveralTopics:
    """Consumers of partitions, lists and patterns, which need an id's topic."""

    @pytest.fixture(params=["partitions", "list", "pattern"])
    def subscribed(self, request, client, pulsar_topic_factory, broker):
        """Argument of subscribe(), and its topics, each with a chunked message and a plain one."""
        if request.param == "partitions":
            parent = pulsar_topic_factory(partitions=2, broker=broker)
            what, topics = parent, client.get_topic_partitions(parent)
        else:
            topics = [pulsar_topic_factory("many", broker=broker) for _ in range(2)]
            what = topics if request.param == "list" else re.compile(topics[0].rpartition("/")[0] + "/many-.*")
        for index, topic in enumerate(topics):
            client.create_producer(topic, chunking_enabled=True).send(payload(index))
            client.create_producer(topic).send(payload(10 + index, 50))
        return what, topics

    @pytest.mark.core
    @pytest.mark.parametrize("form", [*STORED, "message"])
    def test_chunked_message_is_acknowledged_whole(self, client, subscribed, form):
        """The cursor of the message's topic shows its three entries, that of the other topic none."""
        what, topics = subscribed
        consumer = client.subscribe(what, "s", pulsar.ConsumerType.Shared, **EARLIEST)
        messages = {index_of(message): message for message in drain(consumer.receive, 4)}
        if form == "message":
            consumer.acknowledge(messages[1])
        else:
            stored = FORMS[form](messages[1].message_id())
            stored.topic_name(messages[1].topic_name())
            consumer.acknowledge(stored)
        consumer.close()
        assert len(list(acknowledged(client.context.admin_api(), topics[1], "s"))) == 3
        assert list(acknowledged(client.context.admin_api(), topics[0], "s")) == []

    @pytest.mark.parametrize("form", [*STORED, "message"])
    def test_chunked_message_is_redelivered_whole(self, client, subscribed, form):
        """A negative acknowledgement redelivers it, alone."""
        what, _ = subscribed
        consumer = client.subscribe(
            what, "s", pulsar.ConsumerType.Shared, negative_ack_redelivery_delay_ms=100, **EARLIEST
        )
        messages = {index_of(message): message for message in drain(consumer.receive, 4)}
        again = messages[0]
        if form != "message":
            again = FORMS[form](messages[0].message_id())
            again.topic_name(messages[0].topic_name())
        consumer.negative_acknowledge(again)
        assert [index_of(message) for message in drain(consumer.receive, 1)] == [0]

    def test_id_without_topic_raises(self, client, subscribed):
        """A partition's index identifies the topic; otherwise ack and nack raise TopicRequired."""
        what, topics = subscribed
        consumer = client.subscribe(what, "s", pulsar.ConsumerType.Shared, **EARLIEST)
        messages = {index_of(message): message for message in drain(consumer.receive, 4)}
        stored = FORMS["deserialized"](messages[0].message_id())
        if isinstance(what, str):
            consumer.acknowledge(stored)
            consumer.close()
            assert len(list(acknowledged(client.context.admin_api(), topics[0], "s"))) == 3
            return
        for use in (consumer.acknowledge, consumer.negative_acknowledge, consumer.acknowledge_cumulative):
            with pytest.raises(pulsar.TopicRequired, match="topic_name"):
                use(stored)

    def test_partition_is_read_from_a_stored_id(self, client, subscribed):
        """A reader of one topic or partition starts at the whole message from its rebuilt id."""
        _, topics = subscribed
        with client.create_reader(topics[1], MessageId.earliest) as reader:
            message_id = reader.read_next(5000).message_id()
        with client.create_reader(topics[1], FORMS["rebuilt"](message_id), start_message_id_inclusive=True) as reader:
            assert [index_of(message) for message in drain(reader.read_next, 2)] == [1, 11]


class TestTinyLedgers:
    """Every chunked message spans ledgers of two entries; after the cursor has passed them they are trimmed."""

    @pytest.fixture
    def client(self, client_factory, pulsar_broker_factory):
        """Client of a broker with tiny ledgers."""
        return client_factory(pulsar_broker_factory(TINY_LEDGERS))

    @pytest.fixture
    def topic(self, pulsar_topic_factory, pulsar_broker_factory):
        """Unused topic of that broker."""
        return pulsar_topic_factory(broker=pulsar_broker_factory(TINY_LEDGERS))

    @pytest.fixture
    def sent(self, client, topic):
        """Ids of five chunked messages, each across ledgers; subscription `s` retains them."""
        client.subscribe(topic, "s", **EARLIEST).close()
        producer = client.create_producer(topic, chunking_enabled=True)
        ids = [producer.send(payload(index)) for index in range(5)]
        assert any(i.first_chunk_message_id().ledger_id() != i.ledger_id() for i in ids), "no message spans ledgers"
        return ids

    @pytest.mark.parametrize("form", STORED)
    def test_chunked_message_across_ledgers(self, client, topic, sent, form):
        """From a stored id the message is read whole, acknowledged whole and redelivered whole."""
        for index, message_id in enumerate(sent):
            with client.create_reader(topic, FORMS[form](message_id), start_message_id_inclusive=True) as reader:
                assert index_of(reader.read_next(5000)) == index
        consumer = client.subscribe(topic, "s", pulsar.ConsumerType.Shared, negative_ack_redelivery_delay_ms=100)
        drain(consumer.receive, 5)
        consumer.negative_acknowledge(FORMS[form](sent[2]))
        assert [index_of(message) for message in drain(consumer.receive, 1)] == [2]
        for message_id in sent[:4]:
            consumer.acknowledge(FORMS[form](message_id))
        consumer.close()
        with client.subscribe(topic, "s", pulsar.ConsumerType.Shared) as again:
            assert [index_of(message) for message in drain(again.receive, 1)] == [4]

    def _trim_up_to(self, client, topic, last):
        """Move the cursor past an entry, and have the broker delete every ledger before it."""
        admin = client.context.admin_api()
        consumer = client.subscribe(topic, "s")
        blocking_of(consumer).inner.acknowledge_cumulative(MessageId(-1, last.ledger_id, last.entry_id).inner)
        consumer.close()
        assert eventually(lambda: admin.internal_stats(topic).cursors["s"].mark_delete_position >= last)

        def trimmed():
            admin.trim(topic)
            return admin.internal_stats(topic).ledgers[0].ledger_id >= last.ledger_id

        assert eventually(trimmed)

    @pytest.mark.parametrize("form", [*STORED, "live"])
    def test_start_at_trimmed_message(self, client, topic, sent, form):
        """A start or a seek at a completely trimmed message continues with the first remaining message."""
        self._trim_up_to(client, topic, Position(sent[2].ledger_id(), sent[2].entry_id()))
        with client.create_reader(topic, FORMS[form](sent[0]), start_message_id_inclusive=True) as reader:
            assert [index_of(message) for message in drain(reader.read_next, 2)] == [3, 4]
        with pytest.raises(pulsar.MessageIdNotFound):
            client.resolve_message_id(topic, FORMS["rebuilt"](sent[0]))

    def test_start_at_message_with_deleted_first_chunk(self, client, topic, sent):
        """Rebuilt numbers raise IncompleteChunkedMessage before anything moves; a whole id continues after it."""
        index = next(i for i, m in enumerate(sent) if i and m.first_chunk_message_id().ledger_id() != m.ledger_id())
        message_id, first = sent[index], sent[index].first_chunk_message_id()
        ledgers = [ledger.ledger_id for ledger in client.context.admin_api().internal_stats(topic).ledgers]
        following = ledgers[ledgers.index(first.ledger_id()) + 1]
        self._trim_up_to(client, topic, Position(following, 0))
        rebuilt = FORMS["rebuilt"](message_id)
        for use in (
            lambda: client.resolve_message_id(topic, rebuilt),
            lambda: client.create_reader(topic, rebuilt, start_message_id_inclusive=True),
            lambda: client.subscribe(topic, "s").seek(rebuilt),
        ):
            with pytest.raises(pulsar.IncompleteChunkedMessage, match="no client can"):
                use()
        with client.create_reader(topic, message_id, start_message_id_inclusive=True) as reader:
            rest = list(range(index + 1, 5))
            assert [index_of(message) for message in drain(reader.read_next, len(rest))] == rest
