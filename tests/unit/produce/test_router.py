"""Routing of messages to partitions."""

from __future__ import annotations

from collections import Counter

import pulsar
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_ext.produce.batch import BatchingConfig, Bounds
from pulsar_ext.produce.router import HashingScheme, RoundRobin, Routing, hash_of, key_hash


@pytest.mark.parametrize(
    ("key", "partition"),
    [("", 3), ("a", 4), ("key-1", 2), ("é", 5), ("中文", 1), ("12345678", 2), ("123456789", 0), ("x" * 40, 5)],
)
def test_key_hash_matches_cpp_client(key, partition):
    """The partitions were measured with pulsar-client 3.13.0 on a topic with seven partitions."""
    assert key_hash(key) % 7 == partition


@pytest.mark.parametrize(
    ("key", "java", "murmur"),
    [("", 0, 0), ("a", 97, 1009084850), ("key-1", 101943363, 414258592), ("é", 233, 0), ("polygenelubricants", 0, 0)],
)
def test_hashes_match_java_and_murmur3(key, java, murmur):
    """Hashes equal `String.hashCode()`, even for the smallest 32-bit integer, and Murmur3, without the sign."""
    assert hash_of(HashingScheme.JavaStringHash)(key) == java
    assert not murmur or hash_of(HashingScheme.Murmur3_32Hash)(key) == murmur


@given(st.text(st.characters(exclude_categories=("Cs",))), st.sampled_from(HashingScheme))
def test_hash_has_31_bits(key, scheme):
    """Every key hashes to a non-negative 31-bit integer."""
    assert 0 <= hash_of(scheme)(key) < 1 << 31


def test_round_robin_without_batching_alternates():
    """Each message goes to the next partition."""
    router = RoundRobin(None, 10)
    assert set(Counter(router.next(1, 5) for _ in range(50)).values()) == {10}


def test_round_robin_keeps_a_partition_for_a_batch():
    """The partition changes after the messages or the bytes of a batch."""
    router = RoundRobin(Bounds(4, 1000), 60_000)
    chosen = [router.next(10, 3) for _ in range(12)]
    assert [len(set(chosen[at : at + 4])) for at in (0, 4, 8)] == [1, 1, 1]
    assert len(set(chosen)) == 3
    by_bytes = RoundRobin(Bounds(1000, 100), 60_000)
    assert len({by_bytes.next(60, 4) for _ in range(4)}) == 4


def test_single_partition_is_constant():
    """All messages without a key go to one partition."""
    named = {"message_routing_mode": pulsar.PartitionsRoutingMode.UseSinglePartition}
    named |= {"batching_enabled": False, "batching_max_allowed_size_in_bytes": 9, "batching_max_publish_delay_ms": 1}
    named |= {"max_pending_messages": 9, "block_if_queue_full": True}
    routing = Routing(named, BatchingConfig(named), 9, None, deduplicates=False)
    assert len({routing.choose(None, 1, {}, 9) for _ in range(20)}) == 1
