"""Findings about topics on a real broker: each problem is provoked, found, and gone after its remedy."""

from __future__ import annotations

import pulsar as official
import pytest
from acked import send_plain, with_dead_letters_after_two
from chunked import drain, eventually
from keyed import BATCHING
from mending import call_rest, findings_of_kind, mend, namespace_of
from reach import official_client

import pulsar_ext as pulsar
from pulsar_ext import DiagnosisLimits, KeySharedPolicy, auto_split_slot, key_slot
from pulsar_ext.key_shared.coverage import UncoveredSlotsWarning


@pytest.fixture
def officially(broker):
    """Return a client of `pulsar`."""
    client = official_client(broker)
    yield client
    client.close()


@pytest.mark.core
def test_uncovered_slots_are_found_until_covered(client, topic):
    """Slots that no sticky consumer covers are found until the missing consumer subscribes."""
    with pytest.warns(UncoveredSlotsWarning):
        (
            client.new_consumer()
            .topic(topic)
            .subscription_name("s")
            .key_shared_policy(KeySharedPolicy.sticky_hash_range().ranges("0-99"))
            .subscribe()
        )
    [slots] = findings_of_kind(client, topic, "uncovered-slots")
    assert (slots.severity, slots.evidence["uncovered"]) == ("error", "100-65535")
    rest = client.new_consumer().topic(topic).subscription_name("s")
    rest.key_shared_policy(KeySharedPolicy.sticky_hash_range().ranges("100-65535")).subscribe()
    assert findings_of_kind(client, topic, "uncovered-slots") == []


@pytest.mark.core
def test_batches_of_several_keys_are_found(officially, client, topic):
    """A batch of several keys in a Key_Shared backlog is found with its producer; batches by key are not."""
    consumer = officially.subscribe(topic, "s", official.ConsumerType.KeyShared)
    for kind in (official.BatchingType.Default, official.BatchingType.KeyBased):
        producer = officially.create_producer(topic, "sender", batching_type=kind, **BATCHING)
        for number in range(10):
            producer.send_async(b"%d" % number, None, partition_key=f"key-{number}")
        producer.flush()
        producer.close()
        mixed = findings_of_kind(client, topic, "mixed-key-batches")
        if kind is official.BatchingType.KeyBased:
            assert mixed == []
            return
        [one] = mixed
        assert (one.severity, one.evidence["producers"]) == ("error", ["sender"])
        assert one.evidence["subscriptions"] == ["s"]
        assert list(one.evidence["batches"].values()) == [{"messages": 10, "slots": 10}]
        for message in drain(consumer.receive, 10):
            consumer.acknowledge(message)
        assert eventually(lambda: findings_of_kind(client, topic, "mixed-key-batches") == [])


@pytest.mark.parametrize(
    ("policy", "slot_of"),
    [(KeySharedPolicy.auto_split_hash_range(), auto_split_slot), (KeySharedPolicy.sticky_hash_range(), key_slot)],
    ids=["auto-split", "sticky"],
)
def test_mixed_batches_follow_the_slots_of_the_policy(officially, client, topic, policy, slot_of):
    """Two keys are mixed only if they have different slots by the numbering of the subscription's policy."""
    if slot_of is key_slot:
        policy.ranges("0-65535")
    client.subscribe(topic, "s", pulsar.ConsumerType.KeyShared, key_shared_policy=policy)
    producer = officially.create_producer(topic, **BATCHING)
    for mixed, numbering in ((0, slot_of), (1, key_slot if slot_of is auto_split_slot else auto_split_slot)):
        for key in _of_one_slot(numbering):
            producer.send_async(b"", None, partition_key=key)
        producer.flush()
        batches = [one.evidence["batches"] for one in findings_of_kind(client, topic, "mixed-key-batches")]
        assert [list(one.values()) for one in batches] == [[{"messages": 2, "slots": 2}]] * mixed


def _of_one_slot(slot_of):
    """Return two keys that share a slot by one numbering, and do not by the other."""
    seen = {}
    for key in map("key-{}".format, range(10_000)):
        other = seen.setdefault(slot_of(key), key)
        if other != key and (key_slot(key), auto_split_slot(key)) != (key_slot(other), auto_split_slot(other)):
            return other, key
    raise AssertionError(slot_of)


def test_unread_dead_letters_are_found(client, broker, topic):
    """Dead letters without a subscription are found in the namespace; the proposed subscription keeps them."""
    topic += "-DLQ"
    letters = client.create_producer(topic)
    letters.send(b"refused")
    [unread] = findings_of_kind(client, namespace_of(topic), "unread-letters")
    assert (unread.severity, unread.topic, unread.evidence["entries"]) == ("error", topic, 1)
    mend(broker, unread)
    assert findings_of_kind(client, topic, "unread-letters") == []
    assert client.subscribe(topic, "letters").receive(10_000).data() == b"refused"


def test_expiring_messages_are_found(client, admin, broker, topic):
    """A message that has used a share of its time to live is found until the proposed one is set."""
    limits = DiagnosisLimits(quota_share=0.01, pause_seconds=0)
    admin.set_message_ttl(namespace_of(topic), 100)
    client.subscribe(topic, "s").close()
    send_plain(client, topic, 2)
    assert eventually(lambda: len(findings_of_kind(client, topic, "expiring", limits=limits)) == 1)
    [expiring] = findings_of_kind(client, topic, "expiring", limits=limits)
    assert (expiring.severity, expiring.evidence["ttl_seconds"]) == ("warning", 100)
    assert expiring.evidence["oldest"].endswith(":0")
    mend(broker, expiring)
    assert admin.message_ttl(namespace_of(topic)) == 1_000
    assert findings_of_kind(client, topic, "expiring", limits=DiagnosisLimits(quota_share=0.5)) == []


def test_nearly_used_up_quota_is_found(client, admin, broker, topic):
    """A backlog above four fifths of its quota is found with the slowest subscription until the quota is raised."""
    admin.set_backlog_quota(namespace_of(topic), limit_bytes=10_000, policy="producer_exception")
    client.subscribe(topic, "slow").close()
    client.create_producer(topic).send(bytes(9_000))
    assert eventually(lambda: len(findings_of_kind(client, topic, "quota")) == 1)
    [quota] = findings_of_kind(client, topic, "quota")
    assert (quota.severity, quota.subscription) == ("warning", "slow")
    assert (quota.evidence["limit"], quota.evidence["policy"]) == (10_000, "producer_exception")
    assert 9_000 < quota.evidence["used"] < 10_000
    mend(broker, quota)
    assert eventually(lambda: findings_of_kind(client, topic, "quota") == [])


def test_ledgers_kept_by_one_subscription_are_found(client, admin, broker, topic):
    """Three full ledgers that one of two subscriptions keeps are found with their size until it is deleted."""
    for name in ("slow", "fast"):
        client.subscribe(topic, name).close()
    for index in range(4):
        send_plain(client, topic, 3, start=3 * index)
        if index < 3:
            admin.unload(topic)
    admin.skip_all(topic, "fast")
    assert eventually(lambda: len(findings_of_kind(client, topic, "kept-ledgers")) == 1)
    [kept] = findings_of_kind(client, topic, "kept-ledgers")
    assert (kept.subscription, len(kept.evidence["ledgers"]), kept.evidence["backlog_entries"]) == ("slow", 3, 12)
    assert kept.evidence["bytes"] > 0
    mend(broker, kept)
    assert findings_of_kind(client, topic, "kept-ledgers") == []


def test_topic_that_was_never_compacted_is_found(client, broker, topic):
    """A topic above its compaction threshold is found until the proposed compaction."""
    call_rest(broker, "PUT", f"namespaces/{namespace_of(topic)}/compactionThreshold", json=100)
    producer = client.create_producer(topic)
    for number in range(10):
        producer.send(bytes(100), partition_key=f"key-{number % 2}")
    [never] = findings_of_kind(client, topic, "never-compacted")
    assert (never.severity, never.evidence["threshold"]) == ("warning", 100)
    assert never.evidence["bytes"] > 1_000
    mend(broker, never)
    assert eventually(lambda: findings_of_kind(client, topic, "never-compacted") == [])


def test_repeated_and_decreasing_sequence_ids_are_found(officially, client, broker, topic):
    """A repeated and a decreasing sequence id of a named producer are found until the broker deduplicates."""
    producer = officially.create_producer(topic, "sender")
    for number in (0, 1, 5, 1, 3):
        producer.send(b"%d" % number, sequence_id=number)
    [ids] = findings_of_kind(client, topic, "sequence-ids")
    assert ids.evidence["producers"] == ["sender"]
    assert [[one.split(":")[1] for one in pair] for pair in ids.evidence["again"]] == [["1", "3"]]
    assert [(one["after"], one["sequence_id"]) for one in ids.evidence["backwards"]] == [(5, 3)]
    mend(broker, ids)
    assert eventually(lambda: findings_of_kind(client, topic, "sequence-ids") == [])


@pytest.mark.core
def test_healthy_namespace_has_no_findings(client, broker, pulsar_topic_factory):
    """Topics of every kind whose consumers have acknowledged everything have no findings, dead letters included."""
    plain, parted = pulsar_topic_factory(broker=broker), pulsar_topic_factory(broker=broker, partitions=2)
    for topic, kind in ((plain, pulsar.ConsumerType.Shared), (parted, pulsar.ConsumerType.KeyShared)):
        consumer = client.subscribe(topic, "s", kind)
        chunked = kind is pulsar.ConsumerType.Shared
        producer = client.create_producer(topic, chunking_enabled=chunked)
        for number in range(10):
            producer.send(bytes(250_000 if chunked else 10), partition_key=f"key-{number}")
        consumer.acknowledge_many([consumer.receive(10_000) for _ in range(10)])
        consumer.flush_acks(confirm=True)
    rejected = pulsar_topic_factory(broker=broker)
    letters, consumer = client.subscribe(f"{rejected}-dead", "letters"), with_dead_letters_after_two(client, rejected)
    client.create_producer(rejected).send(b"refused")
    for _ in range(2):
        consumer.negative_acknowledge(consumer.receive(10_000))
    letters.acknowledge(letters.receive(10_000))
    letters.flush_acks(confirm=True)
    assert eventually(lambda: not client.diagnose(namespace_of(plain)).findings)
    diagnosis = client.diagnose(namespace_of(plain))
    assert (diagnosis.findings, diagnosis.exit_status, diagnosis.topics) == ((), 0, 5)
