"""Routing of keys to the partitions that Java producers choose, for every way of sending."""

from __future__ import annotations

import pytest
from java_peer import run_java
from reach import Reach

import pulsar_ext as pulsar
from pulsar_ext.testing.backend import process_problem

BOTH_CLIENTS = True

PROBLEM = process_problem()
needs_java = pytest.mark.skipif(PROBLEM is not None, reason=f"the Java client cannot be run here: {PROBLEM}")
pytestmark = pytest.mark.filterwarnings("ignore::pulsar_ext.MixedKeyBatchWarning")

PARTITIONS = 7
KEYS = [
    "",
    "a",
    "key-1",
    "é",
    "中文",
    "😀 and more",
    "polygenelubricants",
    *(f"order-{number}" for number in range(60)),
]
WAYS = {
    "one by one": {},
    "in batches": {"batching_enabled": True, "batching_max_publish_delay_ms": 10},
    "in batches by key": {"batching_enabled": True, "batching_type": pulsar.BatchingType.KeyBased},
    "in chunks": {"chunking_enabled": True},
    "to one partition without a key": {"message_routing_mode": pulsar.PartitionsRoutingMode.UseSinglePartition},
    "lazily": {"batching_enabled": True, "lazy_start_partitioned_producers": True},
}


@pytest.fixture
def topic(pulsar_topic_factory, broker):
    """A topic with seven partitions."""
    return pulsar_topic_factory(broker=broker, partitions=PARTITIONS)


def routes_of_java(broker, topic, scheme):
    """Send each key with the Java client; return the partition of each."""
    said = run_java("RouteKeyed", Reach.of(broker).java_settings(), topic, scheme, lines=KEYS)
    lines = [line.split("\t") for line in said if line.startswith("ROUTE\t")]
    return [int(partition) for _, _, partition in lines]


def routes_of(producer):
    """Send each key; return the partition of each."""
    return [producer.send(b"1", partition_key=key).partition() for key in KEYS]


@needs_java
@pytest.mark.parametrize("scheme", ["JavaStringHash", "Murmur3_32Hash"])
def test_keys_are_routed_as_in_java(client, broker, topic, scheme):
    """Each key goes to the partition that Java chooses with this scheme, for every way of sending."""
    expected = routes_of_java(broker, topic, scheme)
    assert len(set(expected)) > 4
    for options in WAYS.values():
        producer = client.create_producer(topic, hashing_scheme=pulsar.HashingScheme[scheme], **options)
        assert routes_of(producer) == expected
        producer.close()


def test_default_scheme_matches_official_client(client, topic):
    """By default, and with BoostHash, keys go to the partitions of the official client."""
    routes = [
        routes_of(client.create_producer(topic, **options))
        for options in ({}, {"hashing_scheme": pulsar.HashingScheme.BoostHash}, {"batching_enabled": True})
    ]
    assert routes[0] == routes[1] == routes[2]
    others = routes_of(client.create_producer(topic, hashing_scheme=pulsar.HashingScheme.JavaStringHash))
    assert others != routes[0]


def test_scheme_has_no_effect_without_partitions(client, topic, pulsar_topic_factory, broker):
    """A non-partitioned topic accepts the argument; a custom router takes precedence over the scheme."""
    scheme = pulsar.HashingScheme.Murmur3_32Hash
    plain = client.create_producer(pulsar_topic_factory(broker=broker), hashing_scheme=scheme)
    assert plain.send(b"1", partition_key="a").partition() == -1
    routed = client.create_producer(topic, hashing_scheme=scheme, message_router=lambda _message, _count: 3)
    assert set(routes_of(routed)) == {3}


@pytest.mark.core
@pytest.mark.parametrize("scheme", ["Murmur3_32Hash", None, 3])
def test_invalid_hashing_scheme_raises(client, topic, admin, scheme):
    """A string, None or an int raises before anything is opened."""
    with pytest.raises(pulsar.InvalidUse, match="HashingScheme"):
        client.create_producer(topic, hashing_scheme=scheme)
    assert not admin.partitioned_stats(topic).total.publishers
