"""`client.diagnose`: its targets, its cost, and that it changes nothing."""

from __future__ import annotations

import pytest
from acked import send_plain
from chunked import drain, index_of
from mending import SOON, namespace_of

import pulsar_ext as pulsar
from pulsar_ext import DiagnosisLimits
from pulsar_ext.doctor.examination import examine
from pulsar_ext.ids.topic_name import TopicName

BOTH_CLIENTS = True


def subscribe_with_a_hole(client, topic, *subscriptions):
    """Send eight messages, and acknowledge all but the second on each subscription."""
    consumers = [client.subscribe(topic, name, pulsar.ConsumerType.Shared) for name in subscriptions]
    send_plain(client, topic, 8)
    for consumer in consumers:
        messages = drain(consumer.receive, 8)
        consumer.acknowledge_many([one for one in messages if index_of(one) != 1])
        consumer.flush_acks(confirm=True)


@pytest.mark.core
def test_hole_of_a_partition_is_found_from_its_namespace(client, admin, broker, pulsar_topic_factory):
    """A hole in a partition is found if the target is the partition, its topic or its namespace."""
    topic = pulsar_topic_factory(broker=broker, partitions=2)
    partition = str(TopicName.parse(topic).partition(1))
    subscribe_with_a_hole(client, partition, "s")
    for target in (partition, topic, namespace_of(topic)):
        [hole] = client.diagnose(target, limits=SOON).findings
        assert (hole.kind, hole.topic, hole.subscription, hole.evidence["entries"]) == ("holes", partition, "s", 1)


@pytest.mark.core
def test_subscription_argument_restricts_the_diagnosis(client, topic):
    """Only the named subscription is inspected; an unknown name raises an error."""
    subscribe_with_a_hole(client, topic, "a", "b")
    assert {one.subscription for one in client.diagnose(topic, limits=SOON).findings} == {"a", "b"}
    assert {one.subscription for one in client.diagnose(topic, subscription="b", limits=SOON).findings} == {"b"}
    with pytest.raises(pulsar.AdminNotFound, match="'c'"):
        client.diagnose(topic, subscription="c")


def cursor_state(internal):
    """Return the positions of the only cursor, and the topic's number of entries."""
    [cursor] = internal.cursors.values()
    return cursor.mark_delete_position, cursor.read_position, cursor.individually_deleted, internal.number_of_entries


@pytest.mark.blocking_only("tests the requests, which do not differ")
def test_diagnosis_reads_within_its_limit(client, broker, topic):
    """The number of requests is as reported and within the limit; cursors and topics are unchanged."""
    subscribe_with_a_hole(client, topic, "s")
    sent = []
    with pulsar.PulsarAdmin(broker.admin_url, **broker.access.admin_options()) as admin:
        before = admin.internal_stats(topic)
        admin.check_requests(sent.append)
        for limit in (20, 200):
            sent.clear()
            diagnosis = examine(admin, topic, None, DiagnosisLimits(3, 0.2, max_requests=limit))
            assert len(sent) == diagnosis.requests <= limit
            assert [one.kind for one in diagnosis.findings] == ["holes"]
        after = admin.internal_stats(topic)
    assert cursor_state(after) == cursor_state(before)


def test_topics_beyond_the_limit_are_named(client, admin, broker, pulsar_topic_factory):
    """Topics beyond the limit of requests are named in `left_out`."""
    topic = pulsar_topic_factory(broker=broker, partitions=6)
    send_plain(client, topic, 1)
    diagnosis = client.diagnose(topic, limits=DiagnosisLimits(pause_seconds=0, max_requests=10))
    assert (diagnosis.topics, len(diagnosis.left_out)) == (3, 3)
    assert diagnosis.requests <= 10


@pytest.mark.core
@pytest.mark.parametrize("target", ["", "a/b/c/d", "non-persistent://public/default/t"])
def test_invalid_target_raises(client, target):
    """A target that is neither a namespace nor a persistent topic raises `InvalidUse`."""
    with pytest.raises(pulsar.InvalidUse):
        client.diagnose(target)


def test_diagnosis_does_not_create_a_missing_topic(client, topic):
    """A diagnosis of a missing topic raises `AdminNotFound` and does not create it."""
    with pytest.raises(pulsar.AdminNotFound):
        client.diagnose(topic)
    assert client.diagnose(namespace_of(topic)).topics == 0
