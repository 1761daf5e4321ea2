"""A chunked message counts as one for seek, start, acknowledgement and redelivery, by any form of its id."""

from __future__ import annotations

import pytest
from chunked import FORMS, THREE_CHUNKS, acknowledged, drain, eventually, index_of, payload

import pulsar_ext as pulsar
from pulsar_ext import ChunkMessageId, MessageId
from pulsar_ext.ids.position import Position

BOTH_CLIENTS = True

TYPES = [
    pulsar.ConsumerType.Exclusive,
    pulsar.ConsumerType.Failover,
    pulsar.ConsumerType.Shared,
    pulsar.ConsumerType.KeyShared,
]


@pytest.fixture
def sent(client, topic):
    """Ids of six messages: chunked, plain, chunked, plain, chunked, plain."""
    big, small = client.create_producer(topic, chunking_enabled=True), client.create_producer(topic)
    return [(big if i % 2 == 0 else small).send(payload(i, THREE_CHUNKS if i % 2 == 0 else 50)) for i in range(6)]


@pytest.mark.core
def test_every_method_returns_the_whole_id(client, topic, sent):
    """Send, its callback, receive, batch_receive, read_next and listeners return the same ChunkMessageId."""
    called, listened = [], []
    producer = client.create_producer(topic, chunking_enabled=True)
    producer.send_async(payload(6), lambda result, message_id: called.append((result, message_id)))
    producer.flush()
    earliest = {"initial_position": pulsar.InitialPosition.Earliest}
    client.subscribe(topic, "listener", message_listener=lambda _, message: listened.append(message), **earliest)
    received = drain(client.subscribe(topic, "receive", **earliest).receive, 7)
    batched = client.subscribe(topic, "batch", **earliest)
    read = drain(client.create_reader(topic, MessageId.earliest).read_next, 7)
    many = []
    while len(many) < 7:
        many += batched.batch_receive()
    assert eventually(lambda: len(listened) == 7)
    assert called[0][0] == pulsar.Result.Ok
    ids = [*sent, called[0][1]]
    for messages in (received, read, many, listened):
        assert [message.message_id() for message in messages] == ids
        assert [index_of(message) for message in messages] == list(range(7))
        for message, message_id in zip(messages, ids, strict=True):
            assert type(message.message_id()) is type(message_id)
            assert message.message_id().to_text() == message_id.to_text()
    assert [isinstance(message_id, ChunkMessageId) for message_id in ids] == [
        True,
        False,
        True,
        False,
        True,
        False,
        True,
    ]


@pytest.mark.core
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("index", [0, 2, 3, 4, 5])
def test_reader_starts_at_the_whole_message(client, topic, sent, form, index):
    """An inclusive start reads the message itself first, an exclusive one the message after it; none is lost."""
    start = FORMS[form](sent[index])
    with client.create_reader(topic, start, start_message_id_inclusive=True) as reader:
        assert [index_of(message) for message in drain(reader.read_next, 6 - index)] == list(range(index, 6))
    with client.create_reader(topic, start) as reader:
        assert [index_of(message) for message in drain(reader.read_next, 5 - index)] == list(range(index + 1, 6))


@pytest.mark.core(awaited=True)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("index", [0, 4])
def test_inclusive_seek_delivers_the_whole_message(client, topic, sent, form, index):
    """Consumer.seek and Reader.seek, inclusive, deliver the message itself next, then all after it, once each."""
    target = FORMS[form](sent[index])
    with client.subscribe(topic, "s", start_message_id_inclusive=True) as consumer:
        consumer.seek(target)
        assert [index_of(message) for message in drain(consumer.receive, 6 - index)] == list(range(index, 6))
    with client.create_reader(topic, MessageId.earliest, start_message_id_inclusive=True) as reader:
        reader.read_next(5000)
        reader.seek(target)
        assert [index_of(message) for message in drain(reader.read_next, 6 - index)] == list(range(index, 6))


@pytest.mark.core
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("type_", TYPES)
def test_exclusive_seek_continues_after_the_message(client, admin, topic, sent, form, type_):
    """The message after the sought one is delivered, as in Java, twice in a row, and none of its chunks remains."""
    consumer = client.subscribe(topic, "s", type_)
    for _ in range(2):
        consumer.seek(FORMS[form](sent[2]))
        messages = drain(consumer.receive, 3)
        assert [index_of(message) for message in messages] == [3, 4, 5]
    consumer.acknowledge_many(messages)
    consumer.flush_acks(confirm=True)
    assert eventually(lambda: not admin.stats(topic, precise_backlog=True).subscriptions["s"].backlog_entries)


@pytest.mark.parametrize("way", ["listener", "no queue"])
def test_exclusive_seek_of_listener_and_without_queue(client, admin, topic, sent, way):
    """A listener and a consumer without a queue also begin after the chunked message that was sought."""
    received = []
    listener = {"message_listener": lambda _, message: received.append(index_of(message))} if way == "listener" else {}
    queue = 1000 if listener else 0
    consumer = client.subscribe(topic, "s", receiver_queue_size=queue, **listener)
    consumer.seek(sent[2])
    if listener:
        assert eventually(lambda: received[-3:] == [3, 4, 5])
        assert 2 not in received
    else:
        assert [index_of(message) for message in drain(consumer.receive, 3)] == [3, 4, 5]


@pytest.mark.core
@pytest.mark.through
def test_any_chunk_resolves_to_the_whole_message(client, topic, sent):
    """The numbers of the first or a middle chunk resolve to the same whole id, and a seek to them loses nothing."""
    first, last = sent[2].first_chunk_message_id(), sent[2].last_chunk_message_id()
    middle = MessageId(-1, first.ledger_id(), first.entry_id() + 1)
    for chunk in (first, middle, last):
        whole = client.resolve_message_id(topic, chunk)
        assert isinstance(whole, ChunkMessageId)
        assert whole.to_text() == sent[2].to_text()
    with client.create_reader(topic, middle, start_message_id_inclusive=True) as reader:
        assert index_of(reader.read_next(5000)) == 2


@pytest.mark.core
def test_resolve_plain_and_missing_messages(client, topic, sent):
    """A plain message resolves to itself; a position beyond the end raises; neither changes anything."""
    plain = client.resolve_message_id(topic, FORMS["rebuilt"](sent[1]))
    assert plain == sent[1]
    assert not isinstance(plain, ChunkMessageId)
    with pytest.raises(pulsar.MessageIdNotFound, match="not found"):
        client.resolve_message_id(topic, MessageId(-1, sent[5].ledger_id(), sent[5].entry_id() + 1))
    with pytest.raises(pulsar.MessageIdNotFound):
        client.resolve_message_id(topic, MessageId(-1, sent[5].ledger_id() + 1000, 0))


@pytest.mark.core
@pytest.mark.parametrize("form", [*FORMS, "message"])
@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.name)
def test_acknowledgement_covers_every_chunk(client, admin, topic, sent, form, kind):
    """After acknowledging one chunked message by any id, the cursor shows exactly its three entries."""
    consumer = client.subscribe(topic, "s", kind, initial_position=pulsar.InitialPosition.Earliest)
    messages = [consumer.receive(5000) for _ in sent]
    consumer.acknowledge(messages[2] if form == "message" else FORMS[form](messages[2].message_id()))
    consumer.close()
    first = sent[2].first_chunk_message_id()
    expected = [Position(first.ledger_id(), first.entry_id() + i) for i in range(3)]
    assert list(acknowledged(admin, topic, "s")) == expected
    with client.subscribe(topic, "s", kind) as again:
        assert [index_of(message) for message in drain(again.receive, 5)] == [0, 1, 3, 4, 5]


@pytest.mark.core
@pytest.mark.parametrize("form", [*FORMS, "message", "first chunk"])
def test_cumulative_ack_ends_after_the_last_chunk(client, admin, topic, sent, form):
    """Cumulative acknowledgement by any id moves the cursor after the whole message, never into it."""
    consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
    messages = [consumer.receive(5000) for _ in sent]
    forms = {**FORMS, "message": lambda _: messages[2], "first chunk": lambda i: i.first_chunk_message_id()}
    consumer.acknowledge_cumulative(forms[form](messages[2].message_id()))
    consumer.close()
    assert admin.internal_stats(topic).cursors["s"].mark_delete_position == Position(
        sent[2].ledger_id(), sent[2].entry_id()
    )


@pytest.mark.core
@pytest.mark.parametrize("form", [*FORMS, "message"])
@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.name)
def test_nack_redelivers_the_whole_message(client, topic, sent, form, kind):
    """A negatively acknowledged chunked message is redelivered whole; on Shared and Key_Shared no other is."""
    consumer = client.subscribe(
        topic, "s", kind, initial_position=pulsar.InitialPosition.Earliest, negative_ack_redelivery_delay_ms=100
    )
    messages = [consumer.receive(5000) for _ in sent]
    consumer.negative_acknowledge(messages[2] if form == "message" else FORMS[form](messages[2].message_id()))
    alone = kind in (pulsar.ConsumerType.Shared, pulsar.ConsumerType.KeyShared)
    expected = [2] if alone else list(range(6))
    assert sorted(index_of(message) for message in drain(consumer.receive, len(expected))) == expected


@pytest.mark.core
@pytest.mark.through
def test_last_message_id_of_chunked_message_resolves(client, topic, sent):
    """get_last_message_id names the last chunk only; an inclusive start there reads the whole message."""
    last = client.create_producer(topic, chunking_enabled=True).send(payload(6))
    consumer = client.subscribe(topic, "s")
    found = consumer.get_last_message_id()
    assert found == last
    assert hash(found) == hash(last)
    with client.create_reader(topic, found, start_message_id_inclusive=True) as reader:
        assert index_of(reader.read_next(5000)) == 6


@pytest.mark.core
def test_seek_beyond_the_end_raises_and_moves_nothing(client, topic, sent):
    """Numbers beyond the last entry raise, and the subscription continues; officially messages are dropped."""
    consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
    with pytest.raises(pulsar.MessageIdNotFound, match="beyond the end"):
        consumer.seek(MessageId(-1, sent[5].ledger_id(), sent[5].entry_id() + 100))
    with pytest.raises(pulsar.MessageIdNotFound, match="beyond the end"):
        client.create_reader(topic, MessageId(-1, sent[5].ledger_id(), sent[5].entry_id() + 1))
    assert [index_of(message) for message in drain(consumer.receive, 6)] == list(range(6))


@pytest.mark.core
@pytest.mark.parametrize("target", [True, False, "5:7:-1", None, 1.5])
def test_seek_to_invalid_type_raises(client, topic, target):
    """True is not a publish time and text is not an id: seek raises ValueError, and nothing moves."""
    consumer = client.subscribe(topic, "s")
    with pytest.raises(ValueError, match=r"id|time"):
        consumer.seek(target)


class TestWithoutAnAdminApi:
    """Without an admin API there is one warning, and nothing worse than with the official client."""

    @pytest.fixture
    def blind(self, client_factory, broker):
        """Client whose admin API does not answer."""
        return client_factory(broker, admin="http://127.0.0.1:9")

    def test_unresolved_id_warns_once(self, blind, topic, sent):
        """Rebuilt ids are used unresolved; the first use warns, the next ones do not."""
        rebuilt = FORMS["rebuilt"](sent[1])
        with pytest.warns(pulsar.UnresolvedMessageIdWarning, match="PULSAR_ADMIN_URL"):
            blind.create_reader(topic, rebuilt, start_message_id_inclusive=True).close()
        with blind.create_reader(topic, rebuilt, start_message_id_inclusive=True) as reader:
            assert index_of(reader.read_next(5000)) == 1

    @pytest.mark.filterwarnings("ignore::pulsar_ext.UnresolvedMessageIdWarning")
    def test_stored_chunk_id_is_acknowledged_whole(self, blind, admin, topic, sent):
        """The message is read again to get its middle chunks; the cursor shows all three entries."""
        consumer = blind.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
        messages = [consumer.receive(5000) for _ in sent]
        consumer.acknowledge(FORMS["deserialized"](messages[2].message_id()))
        consumer.close()
        assert len(list(acknowledged(admin, topic, "s"))) == 3

    @pytest.mark.filterwarnings("ignore::pulsar_ext.UnresolvedMessageIdWarning")
    def test_nack_without_admin_redelivers_whole_message(self, blind, topic, sent):
        """Every entry from the first chunk to the last is redelivered on Shared."""
        consumer = blind.subscribe(
            topic,
            "s",
            pulsar.ConsumerType.Shared,
            initial_position=pulsar.InitialPosition.Earliest,
            negative_ack_redelivery_delay_ms=100,
        )
        messages = [consumer.receive(5000) for _ in sent]
        consumer.negative_acknowledge(messages[2])
        assert [index_of(message) for message in drain(consumer.receive, 1)] == [2]

    @pytest.mark.filterwarnings("ignore::pulsar_ext.UnresolvedMessageIdWarning")
    def test_unresolvable_chunk_id_is_not_acknowledged(self, blind, admin, topic, sent):
        """A made-up id, whose message cannot be read, raises, and the cursor has not moved."""
        consumer = blind.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
        made_up = ChunkMessageId(sent[2].first_chunk_message_id(), sent[3])
        with pytest.raises(pulsar.MessageIdUnresolved, match="Nothing was acknowledged"):
            consumer.acknowledge(made_up)
        consumer.close()
        assert list(acknowledged(admin, topic, "s")) == []


def test_numbers_without_batch_index_raise(client, topic):
    """Ledger and entry of a batch raise for a start and a seek; with the batch index they work."""
    sent = []
    producer = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=60_000)
    for index in range(5):
        producer.send_async(payload(index, 50), lambda _, message_id: sent.append(message_id))
    producer.flush()
    numbers = sent[3].ledger_id(), sent[3].entry_id()
    entry = MessageId(-1, *numbers)
    consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
    assert client.resolve_message_id(topic, entry) == entry
    for use in (
        lambda: client.create_reader(topic, entry, start_message_id_inclusive=True),
        lambda: client.create_reader(topic, client.resolve_message_id(topic, entry)),
        lambda: client.message_id_after(topic, entry, 1),
        lambda: consumer.seek(entry),
    ):
        with pytest.raises(pulsar.InvalidMessageId, match="holds 5 messages"):
            use()
    exact = MessageId(-1, *numbers, 3)
    reader = client.create_reader(topic, exact, start_message_id_inclusive=True)
    assert index_of(reader.read_next(10_000)) == 3
    assert [index_of(message) for message in drain(consumer.receive, 5)] == list(range(5))
    consumer.seek(exact)
    assert index_of(consumer.receive(10_000)) == 4
