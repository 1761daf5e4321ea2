"""A receive, and something else at the same time: a seek on another thread, another scope, a fork."""

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
def test_what_one_thread_receives_survives_a_seek_on_another(client, topic, how, moves):
    """Behind the last of thirty seeks or redeliveries every message comes, to a thread that received all the while."""
    consumer = client.subscribe(topic, "s", start_message_id_inclusive=True)
    fill(client, topic, COUNT, size=50)
    received, errors, stop = [], [], threading.Event()

    def receive():
        try:
            while not stop.is_set():
                messages = consumer.receive_many(50, 100) if how == "many" else consumer.batch_receive()
                received.extend(index_of(message) for message in messages)
        except BaseException as error:  # noqa: BLE001  # it is looked at below
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


def test_scopes_that_overlap_acknowledge_what_came_in_them(client, admin, topic):
    """One ends while the other is open: both acknowledge what was received in them, and then nothing is noted."""
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


def test_a_forked_childs_loop_hands_out_nothing(program):
    """The child of a fork in the midst of a loop is refused the next message, which stays the parent's."""
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


def test_the_loop_itself_is_refused_in_the_child(program):
    """A loop that goes on in the child, in the generator that the fork copied, hands out nothing either."""
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
