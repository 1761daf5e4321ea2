"""A thread inside `batch_receive()` while another thread ends its consumer or its client."""

from __future__ import annotations

import random
import threading
import time

import pytest
from acked import send_plain

import pulsar_ext as pulsar

_ROUNDS, _THREADS = 20, 4
_POLICIES = {
    "official": None,
    "short": pulsar.ConsumerBatchReceivePolicy(10, 1000, 1),
    "long": pulsar.ConsumerBatchReceivePolicy(1000, -1, 600_000),
}


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("policy", _POLICIES)
@pytest.mark.parametrize("end", ["close", "client.close", "client.closing"])
def test_batch_receive_ends_with_its_consumer_or_client(client_factory, broker, topic, end, policy, several):
    """Batches received in loops on four threads, each ended at a random moment, end with AlreadyClosed."""
    topics = [f"{topic}-{letter}" for letter in "abc"] if several else [topic]
    sender = client_factory(broker)
    for one in topics:
        send_plain(sender, one, 2000)
    for number in range(3 if policy == "long" else _ROUNDS):
        client = client_factory(broker)
        consumer = client.subscribe(
            topics if several else topic,
            f"s{number}",
            batch_receive_policy=_POLICIES[policy],
            initial_position=pulsar.InitialPosition.Earliest,
        )
        raised = []

        def receive(consumer=consumer, raised=raised):
            try:
                while True:
                    consumer.batch_receive()
            except pulsar.PulsarException as error:
                raised.append(type(error))

        threads = [threading.Thread(target=receive, daemon=True) for _ in range(_THREADS)]
        for thread in threads:
            thread.start()
        time.sleep(random.random() / 20)
        {"close": consumer.close, "client.close": client.close, "client.closing": client.shutdown}[end]()
        for thread in threads:
            thread.join(10)
        assert not any(thread.is_alive() for thread in threads)
        assert raised == [pulsar.AlreadyClosed] * _THREADS
