"""`client.diagnose`: what it looks at, what that costs, and that it leaves everything as it was."""

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


def with_a_hole(client, topic, *subscriptions):
    """Send eight messages, and leave the second one of them on each subscription."""
    consumers = [client.subscribe(topic, name, pulsar.ConsumerType.Shared) for name in subscriptions]
    send_plain(client, topic, 8)
    for consumer in consumers:
        messages = drain(consumer.receive, 8)
        consumer.acknowledge_many([one for one in messages if index_of(one) != 1])
        consumer.flush_acks(confirm=True)


@pytest.mark.core
def test_a_partition_of_a_namespace(client, admin, broker, pulsar_topic_factory):
    """A hole in one of two partitions is found by the partition, its topic and its namespace alike."""
    topic = pulsar_topic_factory(broker=broker, partitions=2)
    partition = str(TopicName.parse(topic).partition(1))
    with_a_hole(client, partition, "s")
    for target in (partition, topic, namespace_of(topic)):
        [hole] = client.diagnose(target, limits=SOON).findings
        assert (hole.kind, hole.topic, hole.subscription, hole.evidence["entries"]) == ("holes", partition, "s", 1)


@pytest.mark.core
def test_one_subscription(client, topic):
    """Of two subscriptions with holes the one that is asked about is looked at; one that is not there is an error."""
    with_a_hole(client, topic, "a", "b")
    assert {one.subscription for one in client.diagnose(topic, limits=SOON).findings} == {"a", "b"}
    assert {one.subscription for one in client.diagnose(topic, subscription="b", limits=SOON).findings} == {"b"}
    with pytest.raises(pulsar.AdminNotFound, match="'c'"):
        client.diagnose(topic, subscription="c")


def place(internal):
    """Say where the one cursor is, and what the topic holds."""
    [cursor] = internal.cursors.values()
    return cursor.mark_delete_position, cursor.read_position, cursor.individually_deleted, internal.number_of_entries


@pytest.mark.blocking_only("is about the requests, which are the same")
def test_it_reads_within_its_limit(client, broker, topic):
    """The requests are as many as it says and no more than it may send; cursors and topics are as they were."""
    with_a_hole(client, topic, "s")
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
    assert place(after) == place(before)


def test_topics_beyond_the_limit_are_named(client, admin, broker, pulsar_topic_factory):
    """Where there are more topics than may be asked about, those that were left out are named."""
    topic = pulsar_topic_factory(broker=broker, partitions=6)
    send_plain(client, topic, 1)
    diagnosis = client.diagnose(topic, limits=DiagnosisLimits(pause_seconds=0, max_requests=10))
    assert (diagnosis.topics, len(diagnosis.left_out)) == (3, 3)
    assert diagnosis.requests <= 10


@pytest.mark.core
@pytest.mark.parametrize("target", ["", "a/b/c/d", "non-persistent://public/default/t"])
def test_what_is_no_target(client, target):
    """What is neither a namespace nor a topic with a backlog is refused."""
    with pytest.raises(pulsar.InvalidUse):
        client.diagnose(target)


def test_a_topic_that_is_not_there(client, topic):
    """A topic that is not there is not created by looking at it."""
    with pytest.raises(pulsar.AdminNotFound):
        client.diagnose(topic)
    assert client.diagnose(namespace_of(topic)).topics == 0
