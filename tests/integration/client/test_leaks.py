"""A client that is closed with outstanding answers leaks neither threads nor file descriptors."""

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
connect().close()  # the first client opens resources of the process
time.sleep(1)
"""
_END = """
deadline = time.monotonic() + 20
while count() > before and time.monotonic() < deadline:
    time.sleep(0.1)
print(count() - before)
"""


def _leaked(broker, topic, program, url=None):
    """Return the number of threads and file descriptors that a program leaks after `before`."""
    command = [sys.executable, "-c", _COMMON + program + _END, Reach.of(broker).pack(url), topic]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return int(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("opening", ["create_producer(topic)", "subscribe(topic, 's')"])
def test_closing_during_an_opening_leaks_nothing(pulsar_broker, pulsar_topic, opening):
    """Clients are closed at 300 moments of an opening, which fails or succeeds, without a leak."""
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
    assert _leaked(pulsar_broker, pulsar_topic, program) == 0


@pytest.mark.parametrize("opening", ["create_producer(topic)", "create_reader(topic, pulsar.MessageId.earliest)"])
def test_closing_with_a_silent_broker_leaks_nothing(pulsar_broker, pulsar_topic, opening):
    """Closing a client during an opening with a silent broker fails it at once, without a leak."""
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
        assert _leaked(pulsar_broker, pulsar_topic, program, proxy.service_url) == 0


def test_failed_connections_leak_nothing(pulsar_broker, pulsar_topic):
    """Sixty clients are closed after their first connection to a silent broker failed, without a leak."""
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
        assert _leaked(pulsar_broker, pulsar_topic, program, proxy.service_url) == 0


@pytest.mark.parametrize("closes", ["client.close()", "consumer.close(); client.close()"])
def test_closing_during_a_receive_leaks_nothing(pulsar_broker, pulsar_topic, closes):
    """Consumers without a queue are closed during a receive, or their clients are, without a leak."""
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
    assert _leaked(pulsar_broker, pulsar_topic, program) == 0


@pytest.mark.parametrize("options", ["", "batching_enabled=True", "chunking_enabled=True"])
def test_send_after_close_leaks_nothing(pulsar_broker, pulsar_topic, options):
    """A send after the close does not keep its client alive."""
    program = f"""
def session():
    client = connect()
    producer = client.create_producer(topic, {options})
    producer.send(b"x")
    client.close()
    producer.send_async(b"x", None)

session()  # starts the process's thread for batches and chunks
before = count()
for _ in range(3):
    session()
"""
    assert _leaked(pulsar_broker, pulsar_topic, program) == 0
