"""Partition lookups that fail, overlap, or coincide with a close."""

from __future__ import annotations

import threading
import time

import pulsar as official
import pytest
from chunked import eventually

import pulsar_ext as pulsar
from pulsar_ext.ids.topic_name import TopicName


def test_failed_partition_lookup_is_raised(client, admin, topic, monkeypatch):
    """A failed lookup opens no producer on the partitioned topic itself; the next attempt routes by key."""
    admin.create_partitioned_topic(topic, 4)
    lookup, failed = official.Client.get_topic_partitions, []

    def fail_once(self, name):
        if not failed:
            failed.append(name)
            raise official.ConnectError("Pulsar error: ConnectError")
        return lookup(self, name)

    monkeypatch.setattr(official.Client, "get_topic_partitions", fail_once)
    with pytest.raises(pulsar.ConnectError):
        client.create_producer(topic, batching_enabled=True, batching_type=pulsar.BatchingType.KeyBased)
    producer = client.create_producer(topic, batching_enabled=True, batching_type=pulsar.BatchingType.KeyBased)
    seen: dict[str, set[int]] = {}
    for number in range(40):
        sent = producer.send(b"x", partition_key=f"k{number % 8}")
        seen.setdefault(f"k{number % 8}", set()).add(sent.partition())
    assert failed == [topic]
    assert all(len(partitions) == 1 for partitions in seen.values())
    assert TopicName.parse(producer.topic()) == TopicName.parse(topic)


@pytest.mark.through
def test_added_partitions_are_opened_once(client, admin, topic, monkeypatch):
    """Each added partition has one producer, even if opening takes longer than the check interval."""
    admin.create_partitioned_topic(topic, 1)
    monkeypatch.setattr("pulsar_ext.produce.partitioned._CHECK_SECONDS", 0.05)
    producer = client.create_producer(topic, batching_enabled=True, batching_max_messages=2)
    create = official.Client.create_producer

    def slowly(self, *args, **named):
        time.sleep(0.3)
        return create(self, *args, **named)

    monkeypatch.setattr(official.Client, "create_producer", slowly)
    admin.update_partitions(topic, 3)
    assert eventually(lambda: {producer.send(b"x").partition() for _ in range(6)} == {0, 1, 2})
    monkeypatch.setattr("pulsar_ext.produce.partitioned._CHECK_SECONDS", 60.0)
    assert eventually(lambda: "pulsar_ext-partitions" not in [thread.name for thread in threading.enumerate()])
    assert [len(admin.stats(partition).publishers) for partition in client.get_topic_partitions(topic)] == [1, 1, 1]


def test_close_closes_partition_producers_being_opened(client, admin, topic, monkeypatch):
    """Producers for added partitions that are opened during a close are closed too."""
    admin.create_partitioned_topic(topic, 1)
    monkeypatch.setattr("pulsar_ext.produce.partitioned._CHECK_SECONDS", 0.0)
    producer = client.create_producer(topic, batching_enabled=True)
    create, begun = official.Client.create_producer, threading.Event()

    def slowly(self, *args, **named):
        begun.set()
        time.sleep(0.5)
        return create(self, *args, **named)

    monkeypatch.setattr(official.Client, "create_producer", slowly)
    admin.update_partitions(topic, 2)
    assert eventually(lambda: producer.send(b"x") and begun.is_set())
    producer.close()
    assert eventually(lambda: "pulsar_ext-partitions" not in [thread.name for thread in threading.enumerate()])
    assert [admin.stats(partition).publishers for partition in client.get_topic_partitions(topic)] == [(), ()]
