"""`client.look()` on a real broker: the map shows the broker's state of a topic."""

from __future__ import annotations

import json

import pytest
from acked import send_plain
from chunked import drain
from mending import namespace_of

import pulsar_ext as pulsar
from pulsar_ext import MapLimits
from pulsar_ext.ids.topic_name import TopicName

BOTH_CLIENTS = True

SOON = MapLimits(hole_distance=3, patience_seconds=0.2, pause_seconds=0.2)


@pytest.mark.core
@pytest.mark.through
def test_map_of_a_topic(client, admin, topic):
    """Entries, the cursor with its hole, and the doctor's finding about it are the broker's."""
    consumer = client.subscribe(topic, "s", pulsar.ConsumerType.Shared, consumer_name="worker")
    client.subscribe(topic, "other", pulsar.ConsumerType.Shared)
    send_plain(client, topic, 6)
    consumer.acknowledge_many([one for at, one in enumerate(drain(consumer.receive, 6)) if at != 1])
    consumer.flush_acks(confirm=True)
    seen = client.look(topic, limits=SOON)
    [one] = seen.maps
    internal = admin.internal_stats(topic)
    assert (one.name, one.entries) == (topic, 6)
    assert [(ledger.ledger_id, ledger.entries) for ledger in one.ledgers] == internal.ledger_sizes()
    cursors = {cursor.name: cursor for cursor in one.cursors}
    assert {name: cursor.mark_delete for name, cursor in cursors.items()} == {
        name: str(cursor.mark_delete_position) for name, cursor in internal.cursors.items()
    }
    [hole] = cursors["s"].holes
    assert (hole.first, hole.last, hole.acknowledged_behind) == (2, 2, 4)
    assert (cursors["s"].consumers, cursors["other"].backlog_entries) == (("worker",), 6)
    assert ("holes", "s") in [(finding.kind, finding.subscription) for finding in seen.diagnosis.findings]
    assert json.loads(json.dumps(seen.to_dict()))["topics"][0]["cursors"][0]["name"] == "other"
    only = client.look(topic, subscription="s", limits=SOON)
    assert [cursor.name for cursor in only.maps[0].cursors] == ["s"]


def test_each_partition_has_a_map(client, broker, pulsar_topic_factory):
    """A partitioned topic has a map for each partition, in their order."""
    topic = pulsar_topic_factory(broker=broker, partitions=2)
    names = [str(TopicName.parse(topic).partition(index)) for index in range(2)]
    send_plain(client, names[1], 3)
    assert [(one.name, one.entries) for one in client.look(topic, limits=SOON).maps] == [(names[0], 0), (names[1], 3)]


def test_targets_without_a_map_raise(client, admin, topic):
    """A namespace, a missing topic and a missing subscription raise, and nothing is created."""
    with pytest.raises(pulsar.InvalidUse, match="is a namespace"):
        client.look(namespace_of(topic))
    with pytest.raises(pulsar.AdminNotFound):
        client.look(topic)
    assert admin.topics(namespace_of(topic)) == ()
    admin.create_topic(topic)
    with pytest.raises(pulsar.AdminNotFound, match="missing"):
        client.look(topic, subscription="missing", limits=SOON)
    assert admin.subscriptions(topic) == ()
