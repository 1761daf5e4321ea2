"""Topics, namespaces, tenants and clusters are managed through the admin API, with unusual names."""

import contextlib
import os

import pulsar
import pytest
from chunked import eventually
from stored import send_entries

from pulsar_ext.admin import Persistence, Retention
from pulsar_ext.errors import (
    AdminConflict,
    AdminError,
    AdminNotAllowed,
    AdminNotFound,
    AdminPrecondition,
    InvalidUse,
)
from pulsar_ext.ids.position import Position
from pulsar_ext.ids.topic_name import TopicName

BOTH_CLIENTS = True


@pytest.mark.core
def test_partitioned_topic_raises_or_applies_to_all(admin, parent):
    """Calls for a single topic raise for a partitioned one and change nothing; other calls apply to all partitions."""
    names = [str(TopicName.parse(parent).partition(index)) for index in (0, 1)]
    before = {name: stats.cursors for name, stats in admin.partitioned_internal_stats(parent).items()}
    for call in (
        lambda: admin.stats(parent),
        lambda: admin.internal_stats(parent),
        lambda: admin.entry(parent, 1, 1),
        lambda: admin.examine(parent),
        lambda: admin.message_id_by_index(parent, 0),
        lambda: admin.message_id_by_time(parent, 1),
        lambda: admin.skip_entries(parent, "s", 1),
        lambda: admin.reset_cursor(parent, "s", "earliest"),
        lambda: admin.expire_messages(parent, "s", Position(1, 1)),
        lambda: admin.peek(parent, "s"),
        lambda: admin.analyze_backlog(parent, "s"),
        lambda: admin.create_subscription(parent, "other", Position(1, 1)),
        lambda: admin.terminate(parent),
        lambda: admin.compaction_status(parent),
    ):
        with pytest.raises(AdminNotAllowed, match="parent-partition-0"):
            call()
    assert admin.subscriptions(parent) == ("s",)
    after = admin.partitioned_internal_stats(parent)
    assert list(after) == names
    assert {name: stats.cursors for name, stats in after.items()} == before
    assert sorted(admin.partitioned_stats(parent).partitions) == names
    admin.skip_all(parent, "s")
    admin.reset_cursor_to_time(parent, "s", 1)
    admin.unload(parent)
    admin.trim(parent)
    admin.truncate(parent)
    admin.compact(parent)
    assert list(admin.terminate_partitions(parent)) == names


@pytest.mark.core
def test_topics_are_created_and_deleted(admin, client, namespace):
    """Topics, partitioned or not, are created, listed, enlarged, terminated and deleted, and errors are typed."""
    plain, parent = f"persistent://{namespace}/plain", f"persistent://{namespace}/parent"
    admin.create_topic(plain)
    admin.create_partitioned_topic(parent, 2)
    for create in (lambda: admin.create_topic(plain), lambda: admin.create_partitioned_topic(parent, 2)):
        with pytest.raises(AdminConflict):
            create()
    admin.update_partitions(parent, 3)
    with pytest.raises(AdminError) as caught:
        admin.update_partitions(parent, 1)
    assert caught.value.status == 422
    assert (admin.partitions(plain), admin.partitions(parent)) == (0, 3)
    assert admin.partitioned_topics(namespace) == (parent,)
    assert admin.topics(namespace) == (*(f"{parent}-partition-{index}" for index in range(3)), plain)
    positions = send_entries(client, plain, 3)
    admin.create_subscription(plain, "s")
    # Before the topic is terminated: a consumer of a terminated topic does not prevent its deletion.
    consumer = client.subscribe(plain, "s")
    with pytest.raises(AdminPrecondition):
        admin.delete_topic(plain)
    assert admin.terminate(plain) == positions[-1]
    assert admin.internal_stats(plain).state == "Terminated"
    with pytest.raises(AdminConflict):
        admin.delete_topic(parent)
    admin.delete_topic(plain, force=True)
    consumer.close()
    with contextlib.suppress(AdminNotFound):  # the consumer may have reconnected in between and created it again
        admin.delete_topic(plain, force=True)
    admin.delete_partitioned_topic(parent)
    assert admin.topics(namespace) == ()
    for call in (
        admin.stats,
        admin.partitions,
        admin.delete_topic,
        admin.delete_partitioned_topic,
        admin.internal_stats,
    ):
        with pytest.raises(AdminNotFound, match=namespace):
            call(plain)


@pytest.mark.core
@pytest.mark.parametrize(
    "name", ["a b", "50%", "a%2Fb", "a+b", "q?x=1&y", "h#f", "ünï🎉", "semi;x=1", "back\\slash", "'\"<>", "..x", "a\tb"]
)
def test_unusual_names_are_unchanged(admin, client, namespace, name):
    """A topic and a subscription with an unusual name have the same name in the binary protocol."""
    topic = f"persistent://{namespace}/{name}"
    admin.create_topic(topic)
    assert admin.topics(namespace) == (topic,)
    admin.create_subscription(topic, name, "earliest")
    assert admin.subscriptions(topic) == (name,)
    send_entries(client, topic, 3)
    admin.skip_entries(topic, name, 1)
    assert admin.peek(topic, name).position.entry_id == 1
    consumer = client.subscribe(topic, name)
    assert consumer.receive(5000).data() == b"1"
    consumer.close()
    admin.reset_cursor(topic, name, "latest")
    assert admin.analyze_backlog(topic, name).entries == 0
    admin.delete_subscription(topic, name)
    admin.delete_topic(topic)
    assert admin.topics(namespace) == ()


@pytest.mark.core
def test_non_persistent_topics(admin, namespace):
    """Non-persistent topics are created, listed and measured; calls that need a cursor raise without a request."""
    topic = f"non-persistent://{namespace}/topic"
    admin.create_topic(topic)
    assert admin.topics(namespace, is_persistent=False) == (topic,)
    assert admin.stats(topic).messages_in == 0
    with pytest.raises(AdminNotAllowed, match="non-persistent"):
        admin.skip_entries(topic, "s", 1)
    admin.delete_topic(topic)


@pytest.mark.core
def test_namespace_policies_are_set_read_and_removed(admin, namespace):
    """Each policy is None until set, is read back as set, and is None again after its removal."""
    assert admin.retention(namespace) == Retention(60, 100)
    for get, put, value in (
        (admin.retention, admin.set_retention, Retention(10, 20)),
        (admin.deduplication, admin.set_deduplication, True),
        (admin.deduplication, admin.set_deduplication, False),
        (admin.persistence, admin.set_persistence, Persistence(1, 1, 1, 5.0)),
        (admin.message_ttl, admin.set_message_ttl, 77),
    ):
        put(namespace, value)
        assert get(namespace) == value
        put(namespace, None)
        assert get(namespace) is None
    admin.set_backlog_quota(namespace, limit_bytes=10**9, policy="producer_exception")
    assert admin.policies(namespace).backlog_quotas["destination_storage"]["limitSize"] == 10**9
    admin.remove_backlog_quota(namespace)
    admin.set_deduplication(namespace, value=True)
    policies = admin.policies(namespace)
    assert (policies.backlog_quotas, policies.deduplication, policies.retention) == ({}, True, None)


@pytest.mark.core
def test_deduplication_of_a_topic(admin, namespace):
    """Both policies are None until set, soon read back as set, and None after their removal."""
    topic = f"{namespace}/topic"
    admin.create_topic(topic)
    for get, put, value in (
        (admin.topic_deduplication, admin.set_topic_deduplication, True),
        (admin.topic_deduplication, admin.set_topic_deduplication, False),
        (admin.deduplication_snapshot_interval, admin.set_deduplication_snapshot_interval, 50),
    ):
        for each in (value, None):
            put(topic, each)
            assert eventually(lambda get=get, each=each: get(topic) is each or get(topic) == each)
    admin.set_topic_deduplication(topic, value=True)
    assert eventually(lambda: admin.stats(topic).deduplication_status == "Enabled")
    with pytest.raises(InvalidUse, match="entries must be an int from 1"):
        admin.set_deduplication_snapshot_interval(topic, 0)


@pytest.mark.core
def test_max_message_size_is_set_read_and_removed(admin, namespace):
    """The size is None until set, soon read back as set, and None after its removal; an invalid one sends nothing."""
    topic = f"{namespace}/topic"
    admin.create_topic(topic)
    for size in (1000, None):
        admin.set_max_message_size(topic, size)
        assert eventually(lambda size=size: admin.max_message_size(topic) == size)
    with pytest.raises(InvalidUse, match="size must be an int from 0"):
        admin.set_max_message_size(topic, -1)
    with pytest.raises(AdminNotAllowed, match="non-persistent"):
        admin.set_max_message_size(f"non-persistent://{topic}", 1000)


@pytest.mark.core
def test_tenants_namespaces_and_clusters(admin, broker):
    """Tenants and namespaces are created, listed and deleted; the broker's settings, version and health are read."""
    tenant = f"tenant-{os.urandom(4).hex()}"
    admin.create_tenant(tenant)
    try:
        assert tenant in admin.tenants()
        with pytest.raises(AdminConflict):
            admin.create_tenant(tenant)
        admin.create_namespace(f"{tenant}/n", bundles=2)
        with pytest.raises(AdminConflict):
            admin.create_namespace(f"{tenant}/n")
        assert admin.namespaces(tenant) == (f"{tenant}/n",)
        assert admin.policies(f"{tenant}/n").raw["bundles"]["numBundles"] == 2
        admin.create_topic(f"{tenant}/n/topic")
        with pytest.raises(AdminConflict):
            admin.delete_namespace(f"{tenant}/n")
        admin.delete_namespace(f"{tenant}/n", force=True)
    finally:
        admin.delete_tenant(tenant, force=True)
    with pytest.raises(AdminNotFound):
        admin.namespaces(tenant)
    (cluster,) = admin.clusters()
    found = admin.cluster(cluster)
    assert (found.broker_service_url or found.broker_service_url_tls).startswith(("pulsar://", "pulsar+ssl://"))
    assert admin.broker_configuration()["maxMessageSize"] == "102400"
    assert admin.broker_version()
    assert admin.health()


@pytest.mark.core
def test_schema_versions_are_listed(admin, client, broker, pulsar_topic_factory):
    """Each schema version of a topic or partition is returned by its number; without a schema the result is empty."""
    topic = pulsar_topic_factory(broker=broker, partitions=2)
    partition = str(TopicName.parse(topic).partition(1))
    assert dict(admin.schemas(topic)) == {}
    fields = {"number": pulsar.schema.Integer()}
    for more in ({}, {"text": pulsar.schema.String(required=True, default="-", required_default=True)}):
        record = type("Order", (pulsar.schema.Record,), {**fields, **more})
        client.create_producer(topic, schema=pulsar.schema.AvroSchema(record)).close()
    for name in (topic, partition):
        found = admin.schemas(name)
        assert [(version, one.version, one.type) for version, one in found.items()] == [(0, 0, "AVRO"), (1, 1, "AVRO")]
        assert '"text"' in found[1].data
        assert found[1] == admin.schema(name)
