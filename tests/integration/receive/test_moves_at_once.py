"""Moves of a consumer that meet a close, each other, or a connection that is silent: no hang, no aborted process."""

from __future__ import annotations

import contextlib

import pytest

import pulsar_ext


def test_a_seek_of_a_reader_of_several_partitions_that_fails_ends_no_process(program, admin, topic):
    """On a connection that is silent each of four partitions fails: the seek raises, and the program goes on."""
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
def test_a_seek_that_meets_a_close_returns(program, ends):
    """Thirty seeks, each with a close a few milliseconds later on another thread: all of them return or raise."""
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
def test_what_meets_a_seek_on_another_thread_waits_for_it(program, moves):
    """A seek opens the C++ consumer anew: an unsubscription and a redelivery beside it are not refused meanwhile."""
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


def test_a_consumer_that_is_closed_refuses_whatever_was_called_before(client, topic):
    """Closed, unsubscribed behind that, and received from: refused, where the C++ consumer would wait for ever."""
    for ends in (("close", "unsubscribe"), ("unsubscribe", "unsubscribe"), ("unsubscribe", "close")):
        consumer = client.subscribe(topic, "s")
        getattr(consumer, ends[0])()
        with contextlib.suppress(pulsar_ext.AlreadyClosed):
            getattr(consumer, ends[1])()
        for name, arguments in (("receive", (100,)), ("receive_many", (3, 100)), ("batch_receive", ())):
            with pytest.raises(pulsar_ext.AlreadyClosed):
                getattr(consumer, name)(*arguments)
