"""Readers that share a topic: the chosen filter and its reason, and that the broker sends each message once."""

from __future__ import annotations

import contextlib
import time

import pytest
from awaited import blocking_of
from keyed import KINDS, fill, number_of

import pulsar_ext as pulsar
from pulsar_ext import KeyHashRanges, MessageId
from pulsar_ext.key_shared.reader_group import GroupReader, RangeReader

EXPECTED = {"unbatched": "broker", "key": "broker", "chunked": "broker", "default": "client", "keyless": "client"}

BOTH_CLIENTS = True

# The tests send the kinds of batches that this warning is about.
pytestmark = pytest.mark.filterwarnings("ignore::pulsar_ext.MixedKeyBatchWarning")


_QUIET_SECONDS = 0.4


def read_all(group, expected):
    """Read all readers in turn until `expected` messages arrived and no more arrive; return the numbers of each."""
    found = [[] for _ in group]
    last = time.monotonic()
    while time.monotonic() - last < _QUIET_SECONDS or sum(map(len, found)) < expected:
        assert time.monotonic() - last < 60
        for reader, numbers in zip(group, found, strict=True):
            with contextlib.suppress(pulsar.Timeout):
                while True:
                    numbers.append(number_of(reader.read_next(10)))
                    last = time.monotonic()
    return found


@pytest.mark.core
@pytest.mark.parametrize("partitions", [0, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_group_shares_a_topic(client, admin, pulsar_topic_factory, broker, kind, partitions):
    """Each message of every kind of batch is read once, by its reader, in order per key, and the reason is shown."""
    topic = pulsar_topic_factory(broker=broker, partitions=partitions)
    keys = fill(client, topic, kind, {"chunked": 60, "unbatched": 200}.get(kind, 600))
    with client.create_reader_group(topic, MessageId.earliest, 4) as group:
        assert group.filtering == EXPECTED[kind], group.reason
        assert group.reason in repr(group)
        assert {type(blocking_of(reader)) for reader in group} == {
            GroupReader if group.filtering == "broker" else RangeReader
        }
        found = read_all(group, len(keys))
    assert sorted(number for part in found for number in part) == list(range(len(keys)))
    if kind != "keyless":
        for reader, part in zip(group, found, strict=True):
            assert all(reader.key_hash_ranges.contains_key(keys[n]) for n in part)
            for key in {keys[n] for n in part}:
                assert (of_key := [n for n in part if keys[n] == key]) == sorted(of_key)
    for name in client.get_topic_partitions(topic):
        assert not [one for one in admin.subscriptions(name) if one.startswith("pulsar-ext")]


@pytest.mark.twin_on_demand
@pytest.mark.parametrize("kind", ["unbatched", "key"])
def test_group_receives_each_message_once(client, admin, topic, kind):
    """Four readers on one subscription cost the broker the topic's bytes once."""
    fill(client, topic, kind, 2000)
    size = admin.internal_stats(topic).total_size
    group = client.create_reader_group(topic, MessageId.earliest, 4)
    read_all(group, 2000)
    [stats] = [value for name, value in admin.stats(topic).subscriptions.items() if name.startswith("pulsar-ext")]
    assert group.filtering == "broker"
    assert stats.raw["bytesOutCounter"] <= 1.1 * size
    assert stats.raw["msgOutCounter"] == 2000
    group.close()
    group.close()


@pytest.mark.core
@pytest.mark.parametrize("kind", ["unbatched", "key", "chunked"])
@pytest.mark.parametrize("inclusive", [False, True])
def test_group_starts_anywhere(client, topic, kind, inclusive):
    """From a message in the middle, also of a batch or in chunks, the group reads the rest, with or without it."""
    fill(client, topic, kind, 60)
    reader = client.create_reader(topic, MessageId.earliest)
    everything = [reader.read_next(5000) for _ in range(60)]
    for at in (7, 30):
        start = everything[at].message_id()
        expected = sorted(number_of(m) for m in everything[at if inclusive else at + 1 :])
        with client.create_reader_group(
            topic, start, 3, start_message_id_inclusive=inclusive, filtering="broker"
        ) as group:
            assert sorted(number for part in read_all(group, len(expected)) for number in part) == expected


@pytest.mark.parametrize("inclusive", [False, True])
@pytest.mark.parametrize("partition", [-1, 0])
def test_group_on_partition_starts_at_any_partition_index(client, pulsar_topic_factory, broker, inclusive, partition):
    """An id with or without the partition, as its producer returns it, includes or excludes the start message."""
    topic = f"{pulsar_topic_factory(partitions=1, broker=broker)}-partition-0"
    fill(client, topic, "unbatched", 5)
    reader = client.create_reader(topic, MessageId.earliest)
    third = [reader.read_next(5000) for _ in range(3)][2].message_id()
    start = MessageId(partition, third.ledger_id(), third.entry_id())
    with client.create_reader_group(topic, start, 2, start_message_id_inclusive=inclusive, filtering="broker") as group:
        expected = list(range(3 - inclusive, 5))
        assert sorted(number for part in read_all(group, len(expected)) for number in part) == expected


def test_group_raises_on_later_mixed_batch(client, topic):
    """A group that the broker filters for raises on a batch with mixed keys, and loses nothing silently."""
    fill(client, topic, "unbatched", 50)
    with client.create_reader_group(topic, MessageId.earliest, 4) as group:
        assert group.filtering == "broker"
        assert sum(map(len, read_all(group, 50))) == 50
        fill(client, topic, "default", 100)
        with pytest.raises(pulsar.MisroutedMessage, match="KeyBased"):
            read_all(group, 100)


def test_custom_ranges_and_invalid_tilings(client, topic):
    """Ranges may be any that cover each slot once; gaps, overlaps and a missing topic raise."""
    with pytest.raises(pulsar.NoSuchTopic):
        client.create_reader_group(topic, MessageId.earliest, 4)
    fill(client, topic, "unbatched", 100)
    with client.create_reader_group(topic, MessageId.earliest, [["0-9", "20-65535"], [(10, 19)]]) as group:
        assert group.readers[0].key_hash_ranges == KeyHashRanges(["0-9", "20-65535"])
        assert sum(map(len, read_all(group, 100))) == 100
    for bad in ([["0-9"]], [["0-9"], ["9-65535"]], []):
        with pytest.raises(pulsar.InvalidKeyHashRange):
            client.create_reader_group(topic, MessageId.earliest, bad)
    for options in ({"ranges": 0}, {"ranges": 2, "filtering": "nobody"}):
        with pytest.raises(pulsar.InvalidUse):
            client.create_reader_group(topic, MessageId.earliest, **options)


def test_group_on_empty_topic_filters_in_client(client, admin, topic):
    """On an empty topic the readers filter, because any batch may arrive, and get all messages."""
    admin.create_topic(topic)
    with client.create_reader_group(topic, MessageId.latest, 2) as group:
        assert group.filtering == "client"
        assert "nothing to read" in group.reason
        fill(client, topic, "default", 100)
        assert sum(map(len, read_all(group, 100))) == 100


@pytest.mark.twin_on_demand
@pytest.mark.parametrize("fault", ["cut", "kill"])
def test_nothing_is_lost_or_doubled_by_faults(pulsar_own_broker, client_factory, pulsar_fault_proxy, fault):
    """A group reads every message once, while connections are cut or the broker is killed and restarted."""
    own = pulsar_own_broker("small-chunks")
    topic = "persistent://public/default/faults"
    fill(client_factory(own), topic, "unbatched", 5000, keys=2000)
    fill(client_factory(own), topic, "key", 1000, keys=20)
    proxy = pulsar_fault_proxy(own)
    client = client_factory(own, service_url=proxy.service_url)
    found = []
    with client.create_reader_group(topic, MessageId.earliest, 3, receiver_queue_size=100) as group:
        assert group.filtering == "broker"
        for turn in range(6):
            for reader in group:
                for _ in range(100 + turn):
                    with contextlib.suppress(pulsar.Timeout):
                        found.append(reader.read_next(50).message_id())
            if fault == "cut":
                proxy.cut()
            elif turn < 2:
                own.kill()
                own.restart()
        last = time.monotonic()
        while len(found) < 6000 or time.monotonic() - last < 2:
            assert time.monotonic() - last < 60
            for reader in group:
                with contextlib.suppress(pulsar.Timeout):
                    found.append(reader.read_next(10).message_id())
                    last = time.monotonic()
    assert len(found) == len(set(found)) == 6000


@pytest.mark.core(slow="the broker is often asked whether a reader is at the end")
@pytest.mark.parametrize("filtering", ["broker", "client"])
def test_reader_of_group_behaves_like_a_reader(client, topic, filtering):
    """With either filter, a reader iterates to the end, detects more messages, and seeks without the others."""
    sent = fill(client, topic, "unbatched", 24)
    with client.create_reader_group(topic, MessageId.earliest, 2, filtering=filtering) as group:
        parts = [list(reader) for reader in group]
        assert sorted(number_of(one) for part in parts for one in part) == list(range(len(sent)))
        first, second = group
        assert not first.has_message_available()
        middle = len(parts[0]) // 2
        numbers = list(map(number_of, parts[0]))
        for target, expected in (
            (MessageId.earliest, numbers),
            (parts[0][middle].message_id(), numbers[middle + 1 :]),
            (parts[0][0].publish_timestamp(), numbers),
            (MessageId.latest, []),
        ):
            first.seek(target)
            assert list(map(number_of, first)) == expected
            assert not second.has_message_available()
        fill(client, topic, "unbatched", 24)
        assert list(map(number_of, first)) == numbers
        assert list(map(number_of, second)) == list(map(number_of, parts[1]))


def test_group_reader_seeks_on_partitions(client, pulsar_topic_factory, broker):
    """On a partitioned topic a reader that the broker filters for can only seek to the beginning."""
    topic = pulsar_topic_factory(broker=broker, partitions=2)
    fill(client, topic, "unbatched", 40)
    with client.create_reader_group(topic, MessageId.earliest, 2, filtering="broker") as group:
        for reader in group:
            numbers = sorted(map(number_of, reader))
            with pytest.raises(pulsar.InvalidUse, match="Nothing was moved"):
                reader.seek(MessageId.latest)
            reader.seek(MessageId.earliest)
            assert sorted(map(number_of, reader)) == numbers
