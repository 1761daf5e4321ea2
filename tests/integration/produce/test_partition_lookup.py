"""A topic whose partitions cannot be asked for is not taken for a topic without any."""

from __future__ import annotations

import pulsar as official
import pytest

import pulsar_ext as pulsar
from pulsar_ext.ids.topic_name import TopicName


def test_one_failed_lookup_of_partitions_is_raised(client, admin, topic, monkeypatch):
    """No producer is opened that would send past the partitions; the next attempt routes by key."""
    admin.create_partitioned_topic(topic, 4)
    look, failed = official.Client.get_topic_partitions, []

    def fail_once(self, name):
        if not failed:
            failed.append(name)
            raise official.ConnectError("Pulsar error: ConnectError")
        return look(self, name)

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


def test_partitions_are_opened_once_however_often_they_are_looked_for(client, admin, topic, monkeypatch):
    """Two looks that overlap give each new partition one producer."""
    admin.create_partitioned_topic(topic, 1)
    producer = client.create_producer(topic, batching_enabled=True, batching_type=pulsar.BatchingType.KeyBased)
    admin.update_partitions(topic, 3)
    sender = producer.sender
    for _ in range(20):
        sender._next_look = 0.0
        sender._look_for_more()
    with sender._growing:  # until the look is over
        assert len(sender.parts) == 3
    producer.send_many([b"x"] * 30)
    assert {part.config.partition for part in sender.parts} == {0, 1, 2}
