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


def test_no_answer_overtakes_the_unsubscription_from_several_topics(client, topic):
    """A hundred consumers, of a pattern and of partitions, are unsubscribed in a row: the process lives on."""
    client.create_producer(f"{topic}-a").send(b"x")
    client.context.admin_api().create_partitioned_topic(f"{topic}-parts", 2)
    for number in range(100):
        what = f"{topic}-parts" if number % 2 else re.compile(f"{topic}-a.*")
        client.subscribe(what, f"s{number}").unsubscribe()
    assert client.context.admin_api().subscriptions(f"{topic}-a") == ()
