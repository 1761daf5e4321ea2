"""Open producers, consumers and readers are closed with the client or at the end of the program."""

from __future__ import annotations

import contextlib
import threading
import time

import pytest
from chunked import drain, eventually
from programs import HANG_SECONDS
from stored import contents

import pulsar_ext as pulsar

BOTH_CLIENTS = True

EARLIEST = {"initial_position": pulsar.InitialPosition.Earliest}


@pytest.mark.core
@pytest.mark.parametrize("batching", [False, True])
@pytest.mark.parametrize("kept", ["held", "dropped"])
def test_exit_without_close_sends_everything(program, client, topic, batching, kept):
    """A program that ends with pending callbacks and acknowledgements loses and repeats nothing, with status 0."""
    producer = client.create_producer(topic)
    for index in range(50):
        producer.send(b"old %d" % index)
    client.subscribe(topic, "s", **EARLIEST).close()
    done = program(
        f"""
        def main():
            client = connect()
            consumer = client.subscribe(topic, "s")
            for _ in range(50):
                consumer.acknowledge(consumer.receive(10000))
            producer = client.create_producer(topic, batching_enabled={batching}, batching_max_publish_delay_ms=5000,
                                              max_pending_messages=5000)
            for index in range(500):
                producer.send_async(b"new %d" % index, lambda result, message_id: None)
            return client, consumer, producer
        kept = main()
        if {kept == "dropped"}:
            del kept
        """
    )
    assert done.returncode == 0, done.stderr
    with client.subscribe(topic, "s") as consumer:
        assert [message.data() for message in drain(consumer.receive, 500)] == [b"new %d" % i for i in range(500)]


@pytest.mark.blocking_only("a coroutine ends with its loop")
@pytest.mark.parametrize(
    "use",
    [
        "one.send_async(b'x', lambda *_: None)",
        "batching.send_async(b'x', lambda *_: None)",
        "one.send(b'x')",
        "batching.send(b'x')",
        "consumer.acknowledge(consumer.receive(200))",
        "reader.read_next(200)",
    ],
)
def test_daemon_thread_does_not_abort_the_program(program, topic, use):
    """A daemon thread that outlasts the program does not abort it: the exit status is the program's own."""
    done = program(
        f"""
        client = connect()
        one = client.create_producer(topic, block_if_queue_full=True)
        batching = client.create_producer(topic, block_if_queue_full=True, batching_enabled=True)
        consumer = client.subscribe(topic, "s")
        reader = client.create_reader(topic, pulsar.MessageId.earliest)
        ranges = client.create_reader(topic, pulsar.MessageId.earliest, key_hash_ranges=[pulsar.KeyHashRange(0, 65535)])
        for _ in range(1000):
            one.send_async(b"x", None)
        one.flush()
        def go_on():
            while True:
                try:
                    {use}
                except pulsar.PulsarException:
                    pass
        threading.Thread(target=go_on, daemon=True).start()
        time.sleep(0.2)
        sys.exit(7)
        """
    )
    assert done.returncode == 7, done.stderr


def close_among_senders(client, topic):
    """Close a client during sends of three threads; return the threads, the number of sends, and the results."""
    producer = client.create_producer(topic, block_if_queue_full=True)
    ended, sent, reported = threading.Event(), [], []

    def send():
        with contextlib.suppress(pulsar.AlreadyClosed):
            while True:
                producer.send(b"x")

    def send_async():
        while not ended.is_set():
            sent.append(None)
            producer.send_async(b"x", lambda result, _: reported.append(result))

    threads = [threading.Thread(target=target, daemon=True) for target in (send, send, send_async)]
    for thread in threads:
        thread.start()
    time.sleep(0.05)
    client.close()
    ended.set()
    return threads, sent, reported


@pytest.mark.blocking_only("a coroutine sends on the thread that closes")
def test_send_during_client_close_ends(broker, topic):
    """A send during a close of its client returns an id or raises AlreadyClosed, and every callback is called."""
    for _ in range(20):
        client = pulsar.Client(broker.service_url, **broker.client_options(pulsar))
        threads, sent, reported = close_among_senders(client, topic)
        for thread in threads:
            thread.join(HANG_SECONDS)
        assert not any(thread.is_alive() for thread in threads)
        assert eventually(lambda reported=reported, sent=sent: len(reported) == len(sent), HANG_SECONDS)


@pytest.mark.core
def test_second_close_does_nothing(client, topic):
    """A second close does nothing; any use after a close raises AlreadyClosed."""
    producer, consumer = client.create_producer(topic), client.subscribe(topic, "s")
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    for opened in (producer, consumer, reader):
        opened.close()
        opened.close()
    for use in (lambda: producer.send(b"x"), consumer.receive, lambda: consumer.receive(100), reader.read_next):
        with pytest.raises(pulsar.AlreadyClosed):
            use()
    client.close()
    client.close()


@pytest.mark.core
@pytest.mark.through
def test_close_sends_an_open_batch(client, topic):
    """Closing a producer or its client persists the open batch, which officially fails."""
    results = []
    for _ in range(2):
        producer = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=60_000)
        for index in range(5):
            producer.send_async(b"%d" % index, lambda result, _: results.append(result))
        producer.close()
    assert results == [pulsar.Result.Ok] * 10
    assert len(contents(client, topic)) == 10


@pytest.mark.parametrize("ended_by", ["close", "exit"])
def test_close_completes_on_a_frozen_link(program, ended_by):
    """close() and the end of the program complete with an open batch on a frozen link, and the callback is called."""
    done = program(
        f"""
        with reach.proxy() as proxy:
            client = connect(proxy.service_url, operation_timeout_seconds=3)
            producer = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=60_000,
                                              send_timeout_millis=0)
            producer.send_async(b"x", lambda result, _: print(result.name, flush=True))
            proxy.pause()
            if {ended_by == "close"}:
                try:
                    client.close()
                except pulsar.PulsarException:
                    pass
                print("closed")
        """
    )
    assert done.returncode == 0, done.stderr
    if ended_by == "close":
        reported, *_, ended = [line for line in done.stdout.splitlines() if "ERROR" not in line]
        assert (reported, ended) == ("AlreadyClosed", "closed")


def test_waiting_send_ends_with_its_producer(client, topic):
    """Threads that wait for room in the queue of pending chunks return when the producer is closed."""
    producer = client.create_producer(topic, chunking_enabled=True, block_if_queue_full=True, max_pending_messages=1)

    def send():
        for _ in range(20):
            producer.send_async(b"x" * 300_000, lambda *_: None)

    threads = [threading.Thread(target=send, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(0.2)
    producer.close()
    for thread in threads:
        thread.join(HANG_SECONDS)
    assert not any(thread.is_alive() for thread in threads)
