"""A receive during a seek on another thread, another scope, or a fork."""

from __future__ import annotations

import random
import threading
import time

import pytest
from acked import cursor_of, send_plain
from chunked import eventually, index_of
from prefetched import fill

from pulsar_ext import MessageId

COUNT = 2_000


@pytest.mark.parametrize("how", ["many", "batch"])
@pytest.mark.parametrize("moves", ["seek", "redeliver"])
def test_receiving_thread_survives_another_threads_seek(client, topic, how, moves):
    """After the last of thirty seeks or redeliveries, every message arrives on a thread that kept receiving."""
    consumer = client.subscribe(topic, "s", start_message_id_inclusive=True)
    fill(client, topic, COUNT, size=50)
    received, errors, stop = [], [], threading.Event()

    def receive():
        try:
            while not stop.is_set():
                messages = consumer.receive_many(50, 100) if how == "many" else consumer.batch_receive()
                received.extend(index_of(message) for message in messages)
        except BaseException as error:  # noqa: BLE001  # checked below
            errors.append(error)

    thread = threading.Thread(target=receive)
    thread.start()
    try:
        for _ in range(30):
            time.sleep(random.random() / 50)
            before = len(received)
            if moves == "seek":
                consumer.seek(MessageId.earliest)
            else:
                consumer.redeliver_unacknowledged_messages()
        eventually(lambda: set(received[before:]) == set(range(COUNT)) or errors)
    finally:
        stop.set()
        thread.join(30)
    assert not errors
    assert set(received[before:]) == set(range(COUNT))


def test_overlapping_scopes_acknowledge_their_messages(client, admin, topic):
    """Each of two overlapping scopes acknowledges what it received, and then nothing is recorded."""
    consumer = client.subscribe(topic, "s")
    send_plain(client, topic, 12)
    first, second = consumer.ack_scope(confirm=False), consumer.ack_scope(confirm=False)
    first.__enter__()
    for _ in range(4):
        consumer.receive(10_000)
    second.__enter__()
    for _ in range(4):
        consumer.receive(10_000)
    first.__exit__(None, None, None)
    for _ in range(3):
        consumer.receive(10_000)
    second.__exit__(None, None, None)
    outside = consumer.receive(10_000)
    consumer.flush_acks(confirm=True)
    assert index_of(outside) == 11
    assert eventually(lambda: cursor_of(admin, topic) == set(range(11)))
    assert consumer._recorder is None


def test_forked_childs_new_loop_delivers_nothing(program):
    """The child of a fork during a loop gets an error instead of the next message, which stays the parent's."""
    result = program("""
client = connect()
producer = client.create_producer(topic, batching_enabled=True)
consumer = client.subscribe(topic, "s", initial_position=EARLIEST)
producer.send_many([b"%d" % number for number in range(100)])
seen = []
for message in consumer:
    consumer.acknowledge(message)
    seen.append(int(message.data()))
    if len(seen) == 20:
        if not (pid := os.fork()):
            try:
                for message in consumer:
                    os._exit(1)
            except pulsar.ForkedClientError:
                os._exit(7)
            os._exit(2)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if len(seen) == 100:
        break
print(status, seen == list(range(100)))
client.close()
""")
    assert result.stdout.split()[-2:] == ["7", "True"], result.stderr


def test_forked_childs_copied_loop_delivers_nothing(program):
    """A loop that continues in the child, in the copied generator, delivers nothing either."""
    result = program("""
client = connect()
producer = client.create_producer(topic, batching_enabled=True)
consumer = client.subscribe(topic, "s", initial_position=EARLIEST)
producer.send_many([b"%d" % number for number in range(100)])
count = 0
parent = os.getpid()
try:
    for message in consumer:
        consumer.acknowledge(message)
        count += 1
        if count == 20 and not (pid := os.fork()):
            continue
        if os.getpid() != parent:
            os._exit(1)
        if count == 100:
            break
except pulsar.ForkedClientError:
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), count)
client.close()
""")
    assert result.stdout.split()[-2:] == ["7", "100"], result.stderr
