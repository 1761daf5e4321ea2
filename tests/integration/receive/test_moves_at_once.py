"""Moves of a consumer during a close, another move or a silent connection neither hang nor abort the process."""

from __future__ import annotations

import contextlib

import pytest

import pulsar_ext


def test_failed_seek_on_partitions_keeps_the_process_alive(program, admin, topic):
    """A seek that fails on each of four partitions of a silent connection raises, and the program continues."""
    admin.create_partitioned_topic(topic, 4)
    result = program("""
with reach.proxy() as proxy:
    client = connect(proxy.service_url, operation_timeout_seconds=2)
    opened = client.create_reader(topic, pulsar.MessageId.earliest)
    proxy.pause()
    try:
        opened.seek(int(time.time() * 1000) - 60_000)
    except pulsar.PulsarException as error:
        print(type(error).__name__)
    time.sleep(1)
    proxy.resume()
    print("goes on")
    client.close()
""")
    assert result.stdout.split()[-2:] == ["goes", "on"], result.stderr
    assert result.returncode == 0


@pytest.mark.parametrize("ends", ["consumer.close()", "client.close()", "client.shutdown()"])
def test_seek_during_a_close_returns(program, ends):
    """Thirty seeks, each with a close a few milliseconds later on another thread, return or raise."""
    result = program(f"""
import random
connect().create_producer(topic).send_many([b"x"] * 100)
for number in range(30):
    client = connect()
    consumer = client.subscribe(topic, f"s{{number}}", initial_position=EARLIEST)
    def seek():
        try:
            consumer.seek(pulsar.MessageId.earliest)
        except pulsar.PulsarException:
            pass
    thread = threading.Thread(target=seek, daemon=True)
    thread.start()
    time.sleep(random.random() / 100)
    {ends}
    thread.join(20)
    if thread.is_alive():
        print("hangs", flush=True)
        os._exit(1)
    client.close()
print("done")
""")
    assert result.stdout.split()[-1:] == ["done"], result.stderr[-2000:]


@pytest.mark.parametrize("moves", ["unsubscribe", "redeliver_unacknowledged_messages"])
def test_moves_wait_for_another_threads_seek(program, moves):
    """An unsubscription and a redelivery during a seek, which reopens the C++ consumer, wait and do not raise."""
    result = program(f"""
import random
connect().create_producer(topic).send_many([b"x"] * 100)
client = connect()
for number in range(20):
    consumer = client.subscribe(
        topic, f"s{{number}}", consumer_type=pulsar.ConsumerType.Shared, initial_position=EARLIEST
    )
    raised = []
    def seek():
        try:
            consumer.seek(pulsar.MessageId.earliest)
        except pulsar.AlreadyClosed:
            raised.append("seek")
    thread = threading.Thread(target=seek)
    thread.start()
    time.sleep(random.random() / 50)
    consumer.{moves}()
    thread.join()
    if raised and {moves!r} != "unsubscribe":
        print(raised)
client.close()
print("done")
""")
    assert result.stdout.split() == ["done"], result.stderr[-2000:]


def test_closed_consumer_raises_at_every_receive(client, topic):
    """A closed or unsubscribed consumer raises at every receive, where the C++ consumer would wait forever."""
    for ends in (("close", "unsubscribe"), ("unsubscribe", "unsubscribe"), ("unsubscribe", "close")):
        consumer = client.subscribe(topic, "s")
        getattr(consumer, ends[0])()
        with contextlib.suppress(pulsar_ext.AlreadyClosed):
            getattr(consumer, ends[1])()
        for name, arguments in (("receive", (100,)), ("receive_many", (3, 100)), ("batch_receive", ())):
            with pytest.raises(pulsar_ext.AlreadyClosed):
                getattr(consumer, name)(*arguments)
