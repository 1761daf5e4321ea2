"""A reader of several topics during broker faults: no loss, no duplicates, order is kept."""

from __future__ import annotations

import contextlib
import random
import threading
import time

import pytest

import pulsar_ext as pulsar
from pulsar_ext.testing import FaultProxy

BOTH_CLIENTS = True
pytestmark = pytest.mark.filterwarnings("ignore::pulsar_ext.MixedKeyBatchWarning")

EARLIEST = pulsar.MessageId.earliest
MESSAGES = 3_000
SECONDS = 180


class Senders:
    """Sends numbered messages to topics, on one thread each, until all are persisted."""

    def __init__(self, client, topics):
        for topic in topics:  # or full ledgers are trimmed before `stored()` reads them
            client.subscribe(topic, "keeps").close()
        self._threads = [threading.Thread(target=self._send, args=(client, topic)) for topic in topics]
        for thread in self._threads:
            thread.start()

    @staticmethod
    def _send(client, topic):
        producer = client.create_producer(
            topic, batching_enabled=True, batching_max_messages=20, block_if_queue_full=True, send_timeout_millis=0
        )
        for number in range(MESSAGES):
            producer.send_async(b"%d" % number, None)
            if number % 20 == 0:
                time.sleep(0.02)
        producer.flush()

    def join(self):
        for thread in self._threads:
            thread.join()


def stored(client, topic):
    """Return what a reader of that topic or partition alone reads, including messages that were resent."""
    reader, found = client.create_reader(topic, EARLIEST), []
    while reader.has_message_available():
        message = reader.read_next(10_000)
        found.append((message.message_id(), message.data()))
    reader.close()
    return found


class Reading:
    """Reads several topics, and records the messages of each, until each one's last was read."""

    def __init__(self, reader):
        self.seen = {topic: [] for topic in reader.topics()}
        self._reader, self._wanted = reader, None
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self):
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            try:
                message = self._reader.read_next(500)
            except pulsar.Timeout:
                if self._wanted is not None and all(
                    len(self.seen[topic]) >= count for topic, count in self._wanted.items()
                ):
                    return
                continue
            self.seen[message.topic_name()].append((message.message_id(), message.data()))

    def end(self, wanted):
        """Read until `wanted` messages of each topic have arrived, and no more arrive."""
        self._wanted = wanted
        self._thread.join()


def check(client, reading):
    """Compare the read messages with each topic's content."""
    expected = {topic: stored(client, topic) for topic in reading.seen}
    reading.end({topic: len(messages) for topic, messages in expected.items()})
    for topic, messages in expected.items():
        assert reading.seen[topic] == messages


@pytest.fixture
def topics(pulsar_topic_factory, broker):
    """Two topics, and one with two partitions."""
    plain = [pulsar_topic_factory(broker=broker) for _ in range(2)]
    return [*plain, pulsar_topic_factory(partitions=2, broker=broker)]


def test_reader_survives_unloads_and_cuts(client_factory, client, admin, broker, topics):
    """Messages are read exactly while topics are unloaded and connections cut, in random order."""
    with FaultProxy.to(broker.service_url, broker.detours) as proxy:
        reader = client_factory(broker, service_url=proxy.service_url).create_reader(topics, EARLIEST)
        reading, senders = Reading(reader), Senders(client, topics)
        rng = random.Random(1)
        for _ in range(12):
            time.sleep(rng.uniform(0.05, 0.3))
            if rng.random() < 0.5:
                proxy.cut()
            else:
                with contextlib.suppress(pulsar.AdminError):
                    admin.unload(rng.choice(reader.topics()))
        senders.join()
        check(client, reading)


def test_reader_survives_killed_broker(pulsar_own_broker, client_factory):
    """Messages of topics and partitions are read exactly while the broker is killed and restarted twice."""
    broker = pulsar_own_broker("plain")
    client = client_factory(broker)
    prefix = "persistent://public/default/several"
    client.context.admin_api().create_partitioned_topic(f"{prefix}-c", 2)
    topics = [f"{prefix}-{letter}" for letter in "abc"]
    reader = client.create_reader(topics, EARLIEST)
    reading, senders = Reading(reader), Senders(client, topics)
    for _ in range(2):
        time.sleep(1.0)
        broker.kill()
        broker.restart()
    senders.join()
    check(client, reading)


def test_seeks_of_one_topic_during_cuts(client_factory, client, broker, topics):
    """While one topic is repeatedly sought and connections are cut, messages of the others are read once."""
    Senders(client, topics).join()
    moved = topics[0]
    with FaultProxy.to(broker.service_url, broker.detours) as proxy:
        reader = client_factory(broker, service_url=proxy.service_url).create_reader(topics, EARLIEST)
        reading = Reading(reader)
        marks = []
        for _ in range(5):
            time.sleep(0.1)
            cut = threading.Timer(0.02, proxy.cut)
            cut.start()
            reader.seek({moved: EARLIEST})
            marks.append(len(reading.seen[moved]))
            cut.join()
        expected = {topic: stored(client, topic) for topic in reading.seen}
        reading.end({topic: len(messages) for topic, messages in expected.items()})
        last = reading.seen.pop(moved)[-len(expected[moved]) :]
        assert last == expected.pop(moved)
        assert reading.seen == expected
