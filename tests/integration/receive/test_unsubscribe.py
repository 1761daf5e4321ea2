"""An unsubscription while another thread waits for a batch: it comes back."""

from __future__ import annotations

import re
import threading

import pulsar_ext as pulsar


def test_nobody_waits_for_a_batch_of_several_topics_behind_an_unsubscription(client, topic):
    """Twenty consumers of a pattern that are unsubscribed while a thread receives batches of them in a loop."""
    client.create_producer(f"{topic}-a").send(b"x")
    for number in range(20):
        consumer = client.subscribe(re.compile(f"{topic}-.*"), f"s{number}", receiver_queue_size=5)

        def receive(consumer=consumer):
            try:
                while True:
                    consumer.batch_receive()
            except pulsar.AlreadyClosed:
                pass

        thread = threading.Thread(target=receive, daemon=True)
        thread.start()
        consumer.unsubscribe()
        thread.join(20)
        assert not thread.is_alive()
