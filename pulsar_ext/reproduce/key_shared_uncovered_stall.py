"""A sticky Key_Shared consumer silently stalls as soon as other slots have no consumer."""

import warnings

import pulsar as official

from ._support import Client, Counts, Env, key_slot, label, labels

_COUNT = 20_000
_OWN = range(20_000)
"""Slots that are read."""


def run(pulsar: Client, env: Env) -> Counts:
    """Read the messages of some slots while the others have no consumer."""
    topic, ranges = env.topic(), [(_OWN.start, _OWN.stop - 1)]
    keys = [f"key-{number}" for number in range(_COUNT)]
    own = [key for key in keys if key_slot(key) in _OWN]
    with env.opened(pulsar) as client:
        if pulsar is official:
            policy = pulsar.ConsumerKeySharedPolicy(key_shared_mode=pulsar.KeySharedMode.Sticky, sticky_ranges=ranges)
            consumer = client.subscribe(topic, "s", pulsar.ConsumerType.KeyShared, key_shared_policy=policy)
            _fill(client, topic, keys)
            found = list(labels(lambda millis: _received(consumer, millis), millis=3_000))
            note = "without a warning"
        else:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                client.new_consumer().topic(topic).subscription_name("s").key_shared_policy(
                    pulsar.KeySharedPolicy.sticky_hash_range().ranges(*ranges)
                ).subscribe()
            _fill(client, topic, keys)
            found = list(map(label, client.create_reader(topic, pulsar.MessageId.earliest, key_hash_ranges=ranges)))
            note = f"by a reader of these slots; the consumer: {caught[0].category.__name__}"
    return Counts(len(own), len(found), stuck=len(own) - len(found), duplicated=len(found) - len(set(found)), note=note)


def _fill(client: official.Client, topic: str, keys: list[str]) -> None:
    producer = client.create_producer(topic, block_if_queue_full=True)
    for key in keys:
        producer.send_async(key.encode(), None, partition_key=key)
    producer.flush()


def _received(consumer: official.Consumer, millis: int) -> official.Message:
    message = consumer.receive(millis)
    consumer.acknowledge(message)
    return message
