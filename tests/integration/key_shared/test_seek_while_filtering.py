"""A seek while a consumer of ranges checks a message discards all messages from before the seek."""

from __future__ import annotations

import contextlib

import pytest
from chunked import eventually
from keyed import BATCHING, number_of

import pulsar_ext as pulsar
from pulsar_ext import KeyHashRanges, KeySharedPolicy
from pulsar_ext.key_shared.coverage import UncoveredSlotsWarning

COUNT = 50
LOW, HIGH = KeyHashRanges.full().split(2)

pytestmark = pytest.mark.filterwarnings("ignore::pulsar_ext.MixedKeyBatchWarning")


class Sought(Exception):  # noqa: N818  # no error
    """Raised by a redirecting function after its seek."""


@pytest.fixture
def consumer_of_low(client, topic):
    """Factory of a consumer of the low slots, beside a consumer of the others, and one batch with keys of all slots."""

    def open_one(on_misrouted, **options):
        builder = client.new_consumer().topic(topic).subscription_name("s").on_misrouted(on_misrouted)
        builder.subscription_initial_position(pulsar.InitialPosition.Earliest).load_conf(**options)
        with pytest.warns(UncoveredSlotsWarning):
            one = builder.key_shared_policy(KeySharedPolicy.sticky_hash_range().ranges(*LOW)).subscribe()
        builder.key_shared_policy(KeySharedPolicy.sticky_hash_range().ranges(*HIGH)).subscribe()
        seed = 1
        producer = client.create_producer(topic, **BATCHING)
        while not LOW.contains_key(f"key-{seed}"):
            seed += 1
        for number in range(COUNT):
            producer.send_async(b"%d" % number, None, partition_key=f"key-{seed + number}")
        producer.flush()
        return one

    return open_one


@pytest.mark.parametrize("raises", [False, True])
@pytest.mark.parametrize("how", ["receive", "receive_many", "batch_receive"])
def test_seek_in_redirecting_function(consumer_of_low, how, raises):
    """After the seek each message is delivered once, including the one that was being redirected."""
    sought, later = [], []

    def redirect(message):
        if sought:
            later.append(number_of(message))
            return
        one.seek(pulsar.MessageId.earliest)
        sought.append(number_of(message))
        if raises:
            raise Sought

    one = consumer_of_low(redirect)

    def take():
        with contextlib.suppress(pulsar.Timeout, Sought):
            if how == "receive":
                return [number_of(one.receive(50))]
            return [
                number_of(message)
                for message in (one.receive_many(7, 50) if how == "receive_many" else one.batch_receive())
            ]
        return []

    during = []
    while not sought:
        during = take()
    assert eventually(lambda: later.extend(take()) or {*during, *later} == set(range(COUNT)))
    eventually(lambda: later.extend(take()), 0.5)
    assert len(later) == len(set(later))
