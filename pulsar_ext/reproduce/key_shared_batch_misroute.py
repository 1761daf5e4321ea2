"""Sticky Key_Shared consumers receive messages of each other's slots, as a batch is dispatched by its first key."""

import warnings

import pulsar as official

from ._support import Client, Counts, Env, key_slot, label

_COUNT = 20_000
_PATIENCE = 60
_HALVES = range(32_768), range(32_768, 65_536)
"""Slots of each consumer."""


def run(pulsar: Client, env: Env) -> Counts:
    """Let two consumers share the slots while a producer sends keyed messages in default batches."""
    topic = env.topic()
    received: list[list[str]] = [[], []]
    with env.opened(pulsar) as client:
        consumers = [_subscribe(pulsar, client, topic, turn, received) for turn in range(2)]
        warnings.simplefilter("ignore")  # a client may warn of such a producer
        producer = client.create_producer(topic, batching_enabled=True, block_if_queue_full=True)
        for number in range(_COUNT):
            producer.send_async(f"key-{number % 500} {number}".encode(), None, partition_key=f"key-{number % 500}")
        producer.flush()
        idle = 0
        while sum(map(len, received)) < _COUNT and idle < _PATIENCE:
            before = sum(map(len, received))
            for turn, consumer in enumerate(consumers):
                _receive_all(consumer, received[turn])
            idle = idle + 1 if sum(map(len, received)) == before else 0
    every = [text for part in received for text in part]
    own = sum(key_slot(text.split()[0]) in _HALVES[turn] for turn, part in enumerate(received) for text in part)
    misrouted = len(every) - own
    return Counts(
        sent=_COUNT,
        delivered=own,
        lost=_COUNT - own,
        duplicated=len(every) - len(set(every)),
        note=f"{misrouted} delivered to the other consumer" if misrouted else "",
    )


def _subscribe(
    pulsar: Client, client: official.Client, topic: str, turn: int, received: list[list[str]]
) -> official.Consumer:
    ranges = [(_HALVES[turn].start, _HALVES[turn].stop - 1)]
    if pulsar is official:
        policy = pulsar.ConsumerKeySharedPolicy(key_shared_mode=pulsar.KeySharedMode.Sticky, sticky_ranges=ranges)
        return client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.KeyShared, key_shared_policy=policy)
    builder = client.new_consumer().topic(topic).subscription_name("s")
    builder = builder.on_misrouted(lambda message: received[1 - turn].append(label(message)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the first consumer is alone for a moment
        return builder.key_shared_policy(pulsar.KeySharedPolicy.sticky_hash_range().ranges(*ranges)).subscribe()


def _receive_all(consumer: official.Consumer, received: list[str]) -> None:
    try:
        while True:
            message = consumer.receive(50)
            received.append(label(message))
            consumer.acknowledge(message)
    except official.Timeout:
        return
