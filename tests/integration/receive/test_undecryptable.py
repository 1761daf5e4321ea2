"""Consumers and readers that continue after undecryptable messages receive all readable ones."""

from __future__ import annotations

import logging
import time

import pulsar as official
import pytest
from chunked import eventually
from encryption_keys import encryption_key_files

import pulsar_ext as pulsar
from pulsar_ext import ConsumerCryptoFailureAction as Action

BOTH_CLIENTS = True
ROUNDS, SIZE, QUEUE = 6, 20, 10
READABLE = [b"%d:%d" % (number, place) for number in range(ROUNDS) for place in range(SIZE)]
of_each_action = pytest.mark.parametrize("action", [Action.DISCARD, Action.CONSUME], ids=["discard", "consume"])


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """Return the known key, and another one."""
    made = []
    for name in ("known", "other"):
        private, public = map(str, encryption_key_files(tmp_path_factory.mktemp(name)))
        made.append(pulsar.CryptoKeyReader(public, private))
    return made


@pytest.fixture
def written(pulsar_client_factory, broker, topic, keys):
    """Return a topic with batches of two producers in turn; the second one's cannot be decrypted."""
    client = pulsar_client_factory(broker)
    client.subscribe(topic, "s").close()
    batches = {"batching_enabled": True, "batching_max_messages": SIZE, "batching_max_publish_delay_ms": 60_000}
    producers = [
        client.create_producer(topic, encryption_key=f"{index}", crypto_key_reader=key, **batches)
        for index, key in enumerate(keys)
    ]
    for number in range(ROUNDS):
        for producer in producers:
            producer.send_many([b"%d:%d" % (number, place) for place in range(SIZE)])
    return topic


def readable(messages):
    """Return the contents of the messages that are not delivered encrypted."""
    return [data for data in (message.data() for message in messages) if len(data) < 10]


def receive_all(receive):
    """Receive until every readable message has arrived."""
    messages = []
    while len(readable(messages)) < len(READABLE):
        messages.append(receive(20_000))
    return readable(messages)


def options(keys, action):
    return {"crypto_key_reader": keys[0], "crypto_failure_action": action, "receiver_queue_size": QUEUE}


@pytest.mark.core(each="action", slow="permits are used up six times", awaited=True)
@of_each_action
@pytest.mark.parametrize("kind", [official.ConsumerType.Shared, official.ConsumerType.Exclusive], ids=str)
def test_consumer_continues_after_undecryptable_batches(client, admin, written, keys, caplog, kind, action):
    """With undecryptable batches of twelve queue sizes, other messages arrive once, and a count is logged."""
    consumer = client.subscribe(written, "s", kind, **options(keys, action))

    def receive(millis):
        message = consumer.receive(millis)
        consumer.acknowledge(message)
        return message

    with caplog.at_level(logging.WARNING, "pulsar_ext"):
        assert receive_all(receive) == READABLE
        consumer.flush_acks()
        left = 0 if action == Action.DISCARD else 1  # the last batch is not received
        assert eventually(lambda: admin.stats(written, precise_backlog=True).subscriptions["s"].backlog_entries <= left)
        consumer.close()
    assert "could not be decrypted" in caplog.text


@of_each_action
def test_listener_continues_after_undecryptable_batches(client, written, keys, action):
    """A listener gets every readable message once."""
    received = []

    def listen(consumer, message):
        received.append(message.data())
        consumer.acknowledge(message)

    consumer = client.subscribe(written, "s", message_listener=listen, **options(keys, action))
    assert eventually(lambda: len([data for data in received if len(data) < 10]) == len(READABLE), 40)
    consumer.close()
    assert [data for data in received if len(data) < 10] == READABLE


@pytest.mark.core(slow="permits are used up six times")
@of_each_action
@pytest.mark.parametrize("several", [False, True], ids=["one topic", "list"])
def test_reader_continues_after_undecryptable_batches(client, written, keys, several, action):
    """A reader of a topic or of a list reads every readable message once."""
    topics = [written] if several else written
    reader = client.create_reader(topics, pulsar.MessageId.earliest, **options(keys, action))
    assert receive_all(reader.read_next) == READABLE
    reader.close()


def test_batch_receive_continues_after_undecryptable_batches(client, written, keys):
    """A consumer that uses batch_receive() gets every readable message once."""
    consumer = client.subscribe(written, "s", **options(keys, Action.DISCARD))
    got = []
    while len(got) < len(READABLE):
        for message in consumer.batch_receive():
            got.append(message.data())
            consumer.acknowledge(message)
    assert got == READABLE
    consumer.close()


@pytest.mark.core
@pytest.mark.parametrize("kind", ["consumer", "reader", "readers"])
def test_undecrypted_encrypted_chunks_raise(client, admin, topic, keys, kind):
    """CONSUME of a topic with an encrypted chunked message, which would end the process, raises and opens nothing."""
    producer = client.create_producer(
        topic, encryption_key="k", crypto_key_reader=keys[1], batching_enabled=False, chunking_enabled=True
    )
    producer.send(bytes(250_000))
    producer.close()
    ways = {
        "consumer": lambda: client.subscribe(topic, "s", **options(keys, Action.CONSUME)),
        "reader": lambda: client.create_reader(topic, pulsar.MessageId.earliest, **options(keys, Action.CONSUME)),
        "readers": lambda: client.create_reader([topic], pulsar.MessageId.earliest, **options(keys, Action.CONSUME)),
    }
    with pytest.raises(pulsar.InvalidUse, match="CONSUME cannot receive the encrypted chunked message"):
        ways[kind]()
    assert not admin.stats(topic).subscriptions


@pytest.mark.blocking_only("the loop of the asyncio client calls its listeners, from an empty queue")
def test_paused_listener_is_not_treated_as_stalled(client, admin, written, keys):
    """While a listener is paused, its queue is full and the permits are used up: the consumer is not reopened."""
    received = []

    def listen(consumer, message):
        received.append(message.data())
        consumer.acknowledge(message)

    consumer = client.subscribe(written, "s", message_listener=listen, **options(keys, Action.DISCARD))
    consumer.pause_message_listener()
    before = admin.stats(written).subscriptions["s"].sessions
    plain = client.create_producer(written, batching_enabled=False)
    for number in range(3 * QUEUE):
        plain.send(b"p%d" % number)
    assert eventually(lambda: not admin.stats(written).subscriptions["s"].takes_more)
    time.sleep(1)  # ten polls
    assert admin.stats(written).subscriptions["s"].sessions == before
    consumer.resume_message_listener()
    assert eventually(lambda: len(received) >= len(READABLE) + 3 * QUEUE, 40)
    assert received == READABLE + [b"p%d" % number for number in range(3 * QUEUE)]
    consumer.close()
