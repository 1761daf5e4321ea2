"""Many consumers that acknowledge occasionally, whose connections are polled together."""

from __future__ import annotations

import random
import time

import pytest
from acked import send_plain
from chunked import eventually

import pulsar_ext as pulsar

CONSUMERS, MESSAGES, CUTS = 40, 8, 8
RECEIVE_MILLIS = 20_000


@pytest.mark.parametrize("type_", [pulsar.ConsumerType.Exclusive, pulsar.ConsumerType.Shared])
def test_short_disconnections_lose_no_acks(pulsar_fault_proxy, client_factory, broker, admin, topic, type_):
    """Forty subscriptions lose no acknowledgement while the connection is cut eight times."""
    chance = random.Random(type_.value)
    proxy = pulsar_fault_proxy(broker)
    client = client_factory(broker, service_url=proxy.service_url)
    consumers = [client.subscribe(topic, f"s{number}", type_) for number in range(CONSUMERS)]
    send_plain(client_factory(broker), topic, MESSAGES)
    received = [[consumer.receive(RECEIVE_MILLIS) for _ in range(MESSAGES)] for consumer in consumers]
    events = [
        ((index + chance.random()) / 2, consumer.acknowledge, [messages[index]])
        for consumer, messages in zip(consumers, received, strict=True)
        for index in range(MESSAGES)
    ]
    events += [(chance.uniform(0.2, MESSAGES / 2), proxy.cut, []) for _ in range(CUTS)]
    began = time.monotonic()
    for due, action, arguments in sorted(events, key=lambda event: event[0]):
        time.sleep(max(began + due - time.monotonic(), 0))
        action(*arguments)

    def backlogs() -> dict[str, int]:
        subscriptions = admin.stats(topic, precise_backlog=True).subscriptions
        return {name: one.backlog_entries for name, one in subscriptions.items() if one.backlog_entries}

    assert eventually(lambda: not backlogs(), 30.0), backlogs()
