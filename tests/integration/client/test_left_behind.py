"""What is left of a client that is closed while it owes answers: nothing, neither threads nor file descriptors."""

from __future__ import annotations

import subprocess
import sys

import pytest
from reach import IMPORTED, Reach

from pulsar_ext.testing import FaultProxy

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts threads and files under /proc")

_COMMON = f"""{IMPORTED}
import contextlib, gc, os, sys, threading, time
import pulsar_ext as pulsar

def count():
    gc.collect()
    return len(os.listdir("/proc/self/task")) + len(os.listdir("/proc/self/fd"))

def connect(seconds=30):
    logger = pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull)
    return pulsar.Client(reach.service_url, logger=logger, operation_timeout_seconds=seconds, **reach.options())

def on_a_thread(call):
    def run():
        with contextlib.suppress(pulsar.AlreadyClosed):
            call()
    thread = threading.Thread(target=run)
    thread.start()
    return thread

reach, topic = Reach.unpack(sys.argv[1]), sys.argv[2]
connect().close()  # what the first client opens for the process is not its own
time.sleep(1)
"""
_END = """
deadline = time.monotonic() + 20
while count() > before and time.monotonic() < deadline:
    time.sleep(0.1)
print(count() - before)
"""


def _left(broker, topic, program, url=None):
    """How many threads and file descriptors are left in a program at its end, of those behind `before`."""
    command = [sys.executable, "-c", _COMMON + program + _END, Reach.of(broker).pack(url), topic]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return int(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("opening", ["create_producer(topic)", "subscribe(topic, 's')"])
def test_what_is_being_opened_as_the_client_is_closed(pulsar_broker, pulsar_topic, opening):
    """Clients are closed at some moment of an opening, 300 times: it fails, or not, and nothing of it is left."""
    program = f"""
def session(seconds):
    client = connect()
    thread = on_a_thread(lambda: client.{opening})
    time.sleep(seconds)
    client.close()
    thread.join()

before = count()
for index in range(300):
    session(index % 30 / 1000)
"""
    assert _left(pulsar_broker, pulsar_topic, program) == 0


@pytest.mark.parametrize("opening", ["create_producer(topic)", "create_reader(topic, pulsar.MessageId.earliest)"])
def test_what_is_being_opened_while_the_broker_is_silent(pulsar_broker, pulsar_topic, opening):
    """A client is closed while the broker does not answer: the opening fails at once, and is left to nobody."""
    program = f"""
before = count()
client = connect(seconds=3)
thread = on_a_thread(lambda: client.{opening})
time.sleep(0.3)
client.close()
thread.join()
"""
    with FaultProxy.to(pulsar_broker.service_url, pulsar_broker.detours) as proxy:
        proxy.pause()
        assert _left(pulsar_broker, pulsar_topic, program, proxy.service_url) == 0


def test_who_cannot_connect_as_the_broker_is_silent(pulsar_broker, pulsar_topic):
    """Sixty clients are closed as soon as a first connection to a silent broker has failed: nothing is left of them."""
    program = """
before = count()
def session():
    client = connect(seconds=3)
    try:
        client.create_reader(topic, pulsar.MessageId.earliest)
    except pulsar.ConnectError:
        client.close()

threads = [threading.Thread(target=session) for _ in range(60)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""
    with FaultProxy.to(pulsar_broker.service_url, pulsar_broker.detours) as proxy:
        proxy.pause()
        assert _left(pulsar_broker, pulsar_topic, program, proxy.service_url) == 0


@pytest.mark.parametrize("closes", ["client.close()", "consumer.close(); client.close()"])
def test_who_waits_for_a_message_as_the_client_is_closed(pulsar_broker, pulsar_topic, closes):
    """Consumers without a queue, for whom a message was asked for, are closed, or their clients: nothing is left."""
    program = f"""
def session(index):
    client = connect()
    consumers = [client.subscribe(f"{{topic}}-{{one}}", "s", receiver_queue_size=0) for one in range(5)]
    for consumer in consumers:
        with contextlib.suppress(pulsar.Timeout):
            consumer.receive(10)
    {closes}

before = count()
for index in range(20):
    session(index)
"""
    assert _left(pulsar_broker, pulsar_topic, program) == 0


@pytest.mark.parametrize("options", ["", "batching_enabled=True", "chunking_enabled=True"])
def test_a_message_that_is_sent_behind_the_close(pulsar_broker, pulsar_topic, options):
    """A producer that is used once more after its close keeps its client for good no more."""
    program = f"""
def session():
    client = connect()
    producer = client.create_producer(topic, {options})
    producer.send(b"x")
    client.close()
    producer.send_async(b"x", None)

session()  # which begins the one thread of a process that looks after batches and chunks
before = count()
for _ in range(3):
    session()
"""
    assert _left(pulsar_broker, pulsar_topic, program) == 0
