"""Sticky Key_Shared consumers on a real broker: invalid arguments, covered slots, and misrouted messages."""

from __future__ import annotations

import threading
import time

import pulsar as official
import pytest
from awaited import blocking_of
from chunked import drain
from keyed import BATCHING, fill, number_of
from programs import HANG_SECONDS

import pulsar_ext as pulsar
from pulsar_ext import (
    KeyHashRange,
    KeyHashRanges,
    KeySharedPolicy,
    MultiplierRedeliveryBackoff,
    auto_split_slot,
    key_slot,
)
from pulsar_ext.key_shared.consumer import MisroutedMessageWarning
from pulsar_ext.key_shared.coverage import UncoveredSlotsWarning, key_cover
from pulsar_ext.testing.profiles import Profile

BOTH_CLIENTS = True

FULL = KeyHashRanges.full()
EARLIEST = pulsar.InitialPosition.Earliest
STICKY = pulsar.KeySharedMode.Sticky
EDGES = ["", "k179888", "k27353", "k35981", "中文", "é", "😀", "key1", *(f"key{n}" for n in range(200))]
"""Keys at the edges of the slots, and others."""
HALVING = Profile(
    "halving",
    "Key_Shared ranges that are halved for each consumer, instead of consistent hashing",
    {"subscriptionKeySharedUseConsistentHashing": "false"},
)

# The tests send the kinds of batches that this warning is about.
pytestmark = pytest.mark.filterwarnings("ignore::pulsar_ext.MixedKeyBatchWarning")


def sticky(client, topic, ranges, name="s"):
    """Return a builder of a consumer of these slots."""
    builder = client.new_consumer().topic(topic).subscription_name(name).subscription_initial_position(EARLIEST)
    return builder.key_shared_policy(KeySharedPolicy.sticky_hash_range().ranges(*ranges))


def two_halves(client, topic, action="deliver", **options):
    """Return two consumers that tile the slots; the first one's warning about uncovered slots is expected."""
    low, high = FULL.split(2)
    with pytest.warns(UncoveredSlotsWarning):
        one = sticky(client, topic, low).on_misrouted(action).load_conf(**options).subscribe()
    return one, sticky(client, topic, high).on_misrouted(action).load_conf(**options).subscribe()


def receive_all(*consumers, expected=0):
    """Receive the expected number of messages from all consumers, and then more until none arrives for a second."""
    found = [[] for _ in consumers]
    last = time.monotonic()
    while time.monotonic() - last < (HANG_SECONDS if sum(map(len, found)) < expected else 1):
        for consumer, messages in zip(consumers, found, strict=True):
            try:
                message = consumer.receive(2)
            except pulsar.Timeout:
                continue
            consumer.acknowledge(message)
            messages.append(message)
            last = time.monotonic()
    return found


@pytest.mark.core
@pytest.mark.parametrize("kind", ["unbatched", "key", "chunked"])
def test_tiling_consumers_share_the_messages(client, admin, topic, kind):
    """Each consumer gets the messages of its slots, in order per key; the broker reports its ranges."""
    one, two = two_halves(client, topic)
    keys = fill(client, topic, kind, 60 if kind == "chunked" else 400)
    found = [[number_of(message) for message in part] for part in receive_all(one, two, expected=len(keys))]
    assert sorted(found[0] + found[1]) == list(range(len(keys)))
    for consumer, part in zip((one, two), found, strict=True):
        assert all(consumer.key_hash_ranges.contains_key(keys[n]) for n in part)
        assert consumer.misrouted == 0
    [cover] = key_cover(admin, topic, "s")
    assert cover.is_exact
    assert [ranges for _, ranges in cover.consumers] == FULL.split(2)


def test_broker_and_key_slot_agree_on_consumer(client, topic):
    """The broker and `key_slot` agree on the consumer of keys at the edges of the slots."""
    keys = EDGES
    slots = sorted({key_slot(key) for key in keys})
    cuts = sorted({*slots, *(slot + 1 for slot in slots)} - {65536} | {0})
    parts = [[] for _ in range(3)]
    for turn, (start, after) in enumerate(zip(cuts, [*cuts[1:], 65536], strict=True)):
        parts[turn % 3].append((start, after - 1))
    consumers = [
        client.subscribe(
            topic,
            "s",
            consumer_type=pulsar.ConsumerType.KeyShared,
            initial_position=EARLIEST,
            key_shared_policy=KeySharedPolicy.sticky_hash_range().ranges(*part),
        )
        for part in parts
    ]
    producer = client.create_producer(topic)
    for key in keys:
        producer.send(key.encode(), partition_key=key)
    found = receive_all(*consumers, expected=len(keys))
    assert sum(map(len, found)) == len(keys)
    for part, messages in zip(parts, found, strict=True):
        assert all(key_slot(message.data()) in KeyHashRanges(part) for message in messages)


def test_mixed_batch_is_delivered_with_warning(client, topic):
    """By default messages of other slots are delivered and counted, with one warning."""
    one, two = two_halves(client, topic)
    keys = fill(client, topic, "default", 300)
    with pytest.warns(MisroutedMessageWarning, match="KeyBased") as caught:
        found = receive_all(one, two, expected=300)
    assert sum(map(len, found)) == 300
    for consumer, part in zip((one, two), found, strict=True):
        misrouted = [m for m in part if not consumer.key_hash_ranges.contains_key(keys[number_of(m)])]
        assert consumer.misrouted == len(misrouted)
    assert one.misrouted + two.misrouted > 0
    assert 1 <= len(caught) <= 2


def test_mixed_batch_is_redirected(client, topic):
    """A function gets each message of another slot once, and the consumer only its own messages."""
    misrouted = []
    one, two = two_halves(client, topic, misrouted.append)
    keys = fill(client, topic, "default", 300)
    found = receive_all(one, two)
    for consumer, part in zip((one, two), found, strict=True):
        assert all(consumer.key_hash_ranges.contains_key(keys[number_of(m)]) for m in part)
    assert one.misrouted + two.misrouted == len(misrouted) > 0
    everything = [number_of(message) for part in (*found, misrouted) for message in part]
    assert sorted(everything) == list(range(300))


def test_sticky_consumer_has_the_options_of_subscribe(client, admin, topic):
    """A backoff, the subscription's properties and a retry topic apply to a consumer of slots as to any other."""
    backoff = MultiplierRedeliveryBackoff(100, 1_000)
    options = {
        "negative_ack_redelivery_backoff": backoff,
        "subscription_properties": {"team": "a"},
        "enable_retry": True,
    }
    consumer = sticky(client, topic, FULL).load_conf(**options).subscribe()
    fill(client, topic, "unbatched", 2)
    first, second = consumer.receive(10_000), consumer.receive(10_000)
    consumer.negative_acknowledge(first)
    consumer.reconsume_later(second, 1)
    again = {number_of(message) for message in (consumer.receive(10_000), consumer.receive(10_000))}
    assert again == {number_of(first), number_of(second)}
    assert admin.stats(topic).subscriptions["s"].properties == {"team": "a"}
    with pytest.raises(TypeError, match="colour"):
        sticky(client, topic, FULL, "t").load_conf(colour="red").subscribe()


@pytest.mark.core
@pytest.mark.parametrize("batched", [False, True])
def test_mixed_batch_raises(client, topic, batched):
    """With "raise", the error has the message and its slot, and the next receive continues after it."""
    one, two = two_halves(client, topic, "raise")
    keys = fill(client, topic, "default", 300)
    taken, raised = [], []
    deadline = time.monotonic() + HANG_SECONDS
    while len(taken) < 300 and time.monotonic() < deadline:
        for consumer in (one, two):
            try:
                messages = consumer.batch_receive() if batched else [consumer.receive(1)]
            except pulsar.Timeout:
                continue
            except pulsar.MisroutedMessage as error:
                messages = [error.misrouted]
                raised.append((consumer, error))
            for message in messages:
                consumer.acknowledge(message)
                taken.append(number_of(message))
    assert sorted(taken) == list(range(300))
    assert [drain(consumer.receive) for consumer in (one, two)] == [[], []]
    assert len(raised) == one.misrouted + two.misrouted > 0
    for consumer, error in raised:
        assert error.slot == key_slot(keys[number_of(error.misrouted)])
        assert error.slot not in consumer.key_hash_ranges
        assert error.message_id == error.misrouted.message_id().to_text()


def test_listeners(client, topic):
    """A listener gets its own messages, the function the others; "raise" with a listener is invalid."""
    own, misrouted, complete = [], [], threading.Event()

    def count():
        if len(own) + len(misrouted) == 300:
            complete.set()

    def listener(_, message):
        own.append(message)
        count()

    def redirect(message):
        misrouted.append(message)
        count()

    with pytest.raises(pulsar.InvalidUse, match="function"):
        sticky(client, topic, ["0-5"]).message_listener(listener).on_misrouted("raise").subscribe()
    consumers = two_halves(client, topic, redirect, message_listener=listener)
    keys = fill(client, topic, "default", 300)
    assert complete.wait(20)
    assert len(consumers) == 2
    assert misrouted
    assert sorted(number_of(m) for m in own + misrouted) == list(range(len(keys)))


@pytest.mark.core
@pytest.mark.parametrize("ranges", [[(5, 3)], [(0, 65536)], [(0, 10), (10, 20)], [(7, 7), (7, 7)], []])
def test_invalid_ranges_create_nothing(client, admin, topic, ranges):
    """Ranges that the broker rejects too late raise before any request, in our policy and the official one."""
    admin.create_topic(topic)
    with pytest.raises(pulsar.InvalidKeyHashRange):
        sticky(client, topic, ranges)
    try:
        theirs = official.ConsumerKeySharedPolicy(STICKY, sticky_ranges=ranges)
    except ValueError:  # the official policy rejects some itself
        theirs = KeySharedPolicy.sticky_hash_range()
    with pytest.raises(pulsar.InvalidKeyHashRange):
        client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.KeyShared, key_shared_policy=theirs)
    assert admin.subscriptions(topic) == ()


@pytest.mark.core
@pytest.mark.parametrize("kind", ["Exclusive", "Shared", "Failover"])
def test_ranges_on_another_type_raise(client, admin, topic, kind):
    """Ranges that the official client would ignore raise, by builder and by keyword, and nothing is created."""
    admin.create_topic(topic)
    with pytest.raises(pulsar.InvalidUse, match=kind):
        sticky(client, topic, ["0-5"]).subscription_type(getattr(pulsar.ConsumerType, kind)).subscribe()
    with pytest.raises(pulsar.InvalidUse, match=kind):
        client.subscribe(
            topic,
            "s",
            consumer_type=getattr(pulsar.ConsumerType, kind),
            key_shared_policy=official.ConsumerKeySharedPolicy(STICKY, sticky_ranges=[(0, 5)]),
        )
    assert admin.subscriptions(topic) == ()


@pytest.mark.core
def test_uncovered_slots_warn_or_raise(client, admin, topic):
    """Uncovered slots cause a warning; if full cover is required, an error, and nothing remains."""
    admin.create_topic(topic)
    with pytest.raises(pulsar.SlotsNotCovered, match="65535") as raised:
        sticky(client, topic, ["0-9"]).require_full_cover().subscribe()
    assert raised.value.uncovered == KeyHashRanges(["10-65535"])
    assert admin.subscriptions(topic) == ()
    with pytest.warns(UncoveredSlotsWarning, match="stall"):
        first = sticky(client, topic, ["0-9"]).subscribe()
    with pytest.raises(pulsar.SlotsNotCovered):
        sticky(client, topic, ["20-65535"]).require_full_cover().subscribe()
    [cover] = key_cover(admin, topic, "s")
    assert [ranges for _, ranges in cover.consumers] == [first.key_hash_ranges]
    assert cover.uncovered == KeyHashRanges(["10-65535"])
    second = sticky(client, topic, [KeyHashRange(10, 65535)]).require_full_cover().subscribe()
    assert second.key_hash_ranges == KeyHashRanges(["10-65535"])


def test_require_full_cover_waits_for_others(client, topic):
    """With `wait_seconds`, consumers that start one after the other find the slots covered."""
    parts = FULL.split(3)
    consumers = []

    def start(ranges):
        consumers.append(sticky(client, topic, ranges).require_full_cover(wait_seconds=20).subscribe())

    threads = [threading.Thread(target=start, args=(part,)) for part in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(consumers) == 3


@pytest.mark.through
def test_cover_of_each_partition_is_checked(client, admin, pulsar_topic_factory, broker):
    """The cover of each partition is checked, and messages of all partitions are routed by their slots."""
    topic = pulsar_topic_factory(broker=broker, partitions=3)
    one, two = two_halves(client, topic)
    assert [cover.is_exact for cover in key_cover(admin, topic, "s")] == [True] * 3
    keys = fill(client, topic, "unbatched", 200)
    found = [[number_of(message) for message in part] for part in receive_all(one, two, expected=200)]
    assert sorted(found[0] + found[1]) == list(range(200))
    assert all(one.key_hash_ranges.contains_key(keys[n]) for n in found[0])


@pytest.mark.core
def test_broker_rejects_overlaps_and_other_modes(client, topic):
    """A slot has one sticky consumer, and an auto-split consumer cannot join sticky ones."""
    one, _ = two_halves(client, topic)
    with pytest.raises(pulsar.ConsumerAssignError):
        sticky(client, topic, [next(iter(one.key_hash_ranges))]).subscribe()
    auto = client.new_consumer().topic(topic).subscription_name("s")
    with pytest.raises((pulsar.ConsumerBusy, pulsar.ConsumerAssignError)):  # the latter by brokers of 3.0
        auto.key_shared_policy(KeySharedPolicy.auto_split_hash_range()).subscribe()


@pytest.mark.core
def test_auto_split(client, admin, topic):
    """Auto-split consumers cover all slots, and reject ranges."""
    policy = KeySharedPolicy.auto_split_hash_range
    with pytest.raises(pulsar.InvalidUse, match="sticky_hash_range"):
        policy().ranges("0-5")
    builder = client.new_consumer().topic(topic).subscription_name("s").require_full_cover()
    consumers = [builder.key_shared_policy(policy()).subscribe() for _ in range(3)]
    [cover] = key_cover(admin, topic, "s")
    assert cover.is_exact
    assert cover.mode == "AUTO_SPLIT"
    fill(client, topic, "key", 200)
    assert sum(map(len, receive_all(*consumers, expected=200))) == 200


def check_receivers_of_keys(client, admin, topic):
    """Receive keys with two auto-split consumers, compare the receivers with the cover, and return the cover."""
    named = {}
    for name in ("one", "two"):
        builder = client.new_consumer().topic(topic).subscription_name("s").load_conf(consumer_name=name)
        named[name] = builder.key_shared_policy(KeySharedPolicy.auto_split_hash_range()).subscribe()
    producer = client.create_producer(topic)
    for key in EDGES:
        producer.send(b"", partition_key=key)
    [cover] = key_cover(admin, topic, "s")
    found = receive_all(*named.values(), expected=len(EDGES))
    got = {message.partition_key(): (name,) for name, part in zip(named, found, strict=True) for message in part}
    assert got == {key: cover.consumers_of(key) for key in EDGES}
    return cover


def test_consumers_of_key_with_auto_split(client, admin, topic):
    """The cover names the consumer that gets each key, although the broker numbers the slots differently."""
    cover = check_receivers_of_keys(client, admin, topic)
    assert [cover.slot_of(key) for key in EDGES] == list(map(auto_split_slot, EDGES))
    assert any(key_slot(key) not in dict(cover.consumers)[cover.consumers_of(key)[0]] for key in EDGES)


@pytest.mark.standalone_only("is about a broker's setting")
def test_consumers_of_key_without_consistent_hashing(client_factory, pulsar_broker_factory, pulsar_topic_factory):
    """A broker that halves ranges numbers the slots as for fixed ranges, and the cover detects it."""
    broker = pulsar_broker_factory(HALVING)
    client, topic = client_factory(broker), pulsar_topic_factory(broker=broker)
    with pulsar.PulsarAdmin(broker.admin_url) as admin:
        cover = check_receivers_of_keys(client, admin, topic)
    assert [cover.slot_of(key) for key in EDGES] == list(map(key_slot, EDGES))


@pytest.mark.core
def test_policy_is_both_official_ones():
    """Our policy is accepted as the official wrapper and as the native policy, and returns its settings."""
    policy = KeySharedPolicy.sticky_hash_range().ranges("5-9", (1, 2))
    assert isinstance(policy, official.ConsumerKeySharedPolicy)
    assert isinstance(policy, official.KeySharedPolicy)
    assert (policy.key_shared_mode, policy.sticky_ranges) == (STICKY, [(1, 2), (5, 9)])
    policy.set_allow_out_of_order_delivery(True)
    assert policy.allow_out_of_order_delivery
    assert KeySharedPolicy().get_key_shared_mode() == pulsar.KeySharedMode.AutoSplit


@pytest.mark.parametrize("missing", ["topic", "subscription_name"])
def test_builder_without_required_option_raises(client, topic, missing):
    """Without a topic or a subscription's name, the error names the missing call."""
    builder = sticky(client, topic, ["0-5"])
    del builder._options[missing]
    with pytest.raises(pulsar.InvalidUse, match=missing):
        builder.subscribe()
    with pytest.raises(pulsar.InvalidUse, match="on_misrouted"):
        builder.on_misrouted("drop")


@pytest.mark.core
def test_builder_without_policy_is_plain_consumer(client, topic):
    """Without a policy the builder returns what `subscribe` returns."""
    consumer = client.new_consumer().topic(topic).subscription_name("s").subscribe()
    client.create_producer(topic, **BATCHING).send(b"1", partition_key="a")
    assert number_of(consumer.receive(5000)) == 1
    assert type(blocking_of(consumer)) is pulsar.Consumer
