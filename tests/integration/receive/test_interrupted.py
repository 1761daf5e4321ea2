"""A receive that is interrupted by a Ctrl-C loses no message."""

from __future__ import annotations

import threading
import time

import pytest
from interrupted import interruptions
from programs import HANG_SECONDS

import pulsar_ext as pulsar

BOTH_CLIENTS = True


@pytest.mark.core(slow="a receive is interrupted at many moments")
@pytest.mark.blocking_only("a Ctrl-C cancels awaited receives, which test_asyncio.py does 3,000 times")
@pytest.mark.parametrize(
    ("what", "queue"),
    [*((what, queue) for what in ("receive", "read_next") for queue in (1000, 1, 0)), ("loop", 1000), ("many", 1000)],
)
def test_interrupted_receive_loses_no_message(client, topic, what, queue):
    """With a Ctrl-C every 10 ms while messages arrive, each ends a wait, and every message arrives once."""
    count = 400
    opened = (
        client.create_reader(topic, pulsar.MessageId.earliest, receiver_queue_size=queue)
        if what == "read_next"
        else client.subscribe(topic, "s", receiver_queue_size=queue)
    )
    acknowledge = getattr(opened, "acknowledge_many", list)  # after an acknowledgement, another receive path is used
    producer = client.create_producer(topic)

    def produce():
        for index in range(count):
            producer.send(b"%d" % index)
            if index % 20 == 0:
                time.sleep(0.15)

    thread = threading.Thread(target=produce)
    thread.start()
    received, interrupted = [], 0
    deadline = time.monotonic() + HANG_SECONDS
    with interruptions() as waiting:
        while len(received) < count and time.monotonic() < deadline:
            came = None  # stored by the next instruction, so that the test itself loses no message
            try:
                waiting[:] = [True]
                if what == "loop":
                    for came in opened:  # noqa: B007  # read below
                        break
                elif what == "many":
                    came = opened.receive_many(7)
                else:
                    came = getattr(opened, what)()
            except KeyboardInterrupt:
                interrupted += 1
            del waiting[:]
            messages = [] if came is None else came if what == "many" else [came]
            received += [int(message.data()) for message in messages]
            if len(received) > count // 2:
                acknowledge(messages)
    thread.join()
    assert received == list(range(count))
    assert interrupted


@pytest.mark.blocking_only("a Ctrl-C cancels awaited receives, which test_asyncio.py does 3,000 times")
def test_receive_with_a_timeout_can_be_interrupted(program):
    """A Ctrl-C ends receive(600_000) and read_next() at once, with a KeyboardInterrupt."""
    done = program(
        """
        client = connect()
        consumer, reader = client.subscribe(topic, "s"), client.create_reader(topic, pulsar.MessageId.latest)
        for wait in (lambda: consumer.receive(600_000), reader.read_next, consumer.receive):
            timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
            timer.start()
            try:
                wait()
            except KeyboardInterrupt:
                print("interrupted")
        client.close()
        """
    )
    assert done.stdout.split() == ["interrupted"] * 3, done.stderr


@pytest.mark.blocking_only("a Ctrl-C cancels awaited receives, which test_asyncio.py does 3,000 times")
def test_interrupted_batch_receive_keeps_its_batch(program):
    """Messages of a batch_receive() interrupted by a Ctrl-C are returned by the next call."""
    done = program(
        """
        client = connect()
        policy = pulsar.ConsumerBatchReceivePolicy(3, 1_000_000, 1500)
        consumer = client.subscribe(topic, "s", batch_receive_policy=policy)
        producer = client.create_producer(topic)
        timer = threading.Timer(0.4, lambda: (producer.send(b"0"), os.kill(os.getpid(), signal.SIGINT)))
        timer.start()
        received = []
        try:
            received += consumer.batch_receive()
        except KeyboardInterrupt:
            print("interrupted")
        while not received:
            received += consumer.batch_receive()
        print([message.data() for message in received])
        client.close()
        """
    )
    assert done.stdout.splitlines() == ["interrupted", "[b'0']"], done.stderr
