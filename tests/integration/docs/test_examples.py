"""The programs of examples/ are killed at random points and started again, and every message is accounted for.

`outbox.py` is tested in tests/integration/dedup, `async_service.py` in tests/integration/asyncio, and Spark's jobs,
which `word_count.py` is like, in tests/integration/spark.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path

import pytest
from chunked import eventually
from ways import BEHIND_A_PROXY

import pulsar_ext as pulsar

pytestmark = pytest.mark.standalone_only("runs examples, which take a URL and no certificates", ways=("mtls",))

EXAMPLES = Path(__file__).parents[3] / "examples"
KILLS = 4
_SECONDS = 120


def is_said(line):
    """Whether a line is the program's own, and not of the C++ client's log."""
    return not re.match(r"\d{4}-\d\d-\d\d ", line)


@contextlib.contextmanager
def killed_if_silent(process):
    """Kills a process unless the block ends within two minutes."""
    timer = threading.Timer(_SECONDS, process.kill)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class Program:
    """An example that is killed and started again; what it printed is in `lines`.

    Args:
        broker: the broker, which the program finds in its arguments and in the environment.
        name: the example's.
        arguments: more arguments.
    """

    def __init__(self, broker, name, *arguments):
        # Not -u: it would write a line and its end apart, and the C++ client's log in between.
        self._command = [sys.executable, EXAMPLES / name, *arguments]
        self._environment = {**os.environ, "PULSAR_ADMIN_URL": broker.admin_url}
        self.lines: list[str] = []

    def start(self):
        """Start it."""
        return subprocess.Popen(
            self._command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=self._environment
        )

    def end(self, process, number):
        """Send it a signal, if any, wait for its end, and keep what it printed."""
        if number is not None:
            process.send_signal(number)
        with killed_if_silent(process), process.stdout:
            self.lines += filter(is_said, process.stdout.read().splitlines())
        return process.wait()

    def be_killed(self, dice, times=KILLS):
        """Kill it a few times at random, once it has begun to print or a few seconds later."""
        for _ in range(times):
            process = self.start()
            time.sleep(dice.uniform(0.8, 2.5))
            self.end(process, signal.SIGKILL)

    def finish(self):
        """Let it come to its end."""
        assert self.end(self.start(), None) == 0, self.lines[-5:]


@pytest.fixture
def broker(pulsar_broker_factory):
    """A plain broker."""
    return pulsar_broker_factory("plain")


@pytest.fixture
def client(broker, pulsar_client_factory):
    """A client of it."""
    return pulsar_client_factory(broker)


@pytest.fixture
def topic(broker, pulsar_topic_factory):
    """A topic on it."""
    return pulsar_topic_factory(broker=broker)


def test_every_document_is_in_the_index_and_is_found(broker, client, topic, tmp_path):
    """store_ids.py: killed while it indexes, it has every id in the end, and a document of several chunks is found."""
    producer = client.create_producer(topic, chunking_enabled=True, block_if_queue_full=True)
    producer.send(b"x" * 6_000_000, properties={"name": "large"})
    for number in range(2_000):
        producer.send_async(b"x", None, properties={"name": f"report {number}"})
    producer.flush()
    database = tmp_path / "ids.db"
    program = Program(broker, "store_ids.py", "index", broker.service_url, topic, database)
    program.be_killed(random.Random(1))
    program.finish()
    with sqlite3.connect(database) as rows:
        assert rows.execute("SELECT count(*) FROM ids").fetchone() == (2_001,)
    for name, size in (("large", 6_000_000), ("report 1234", 1)):
        show = Program(broker, "store_ids.py", "show", broker.service_url, topic, database, name)
        show.finish()
        assert show.lines[-1].startswith(f"{name}: {size} bytes, ")


def test_every_order_is_billed_or_a_dead_letter(broker, client, topic):
    """poison.py: killed while it works, no order is missing, and only the poison is among the dead letters."""
    producer = client.create_producer(topic, batching_enabled=True)
    poison = {f"poison {number}" for number in range(3)}
    client.subscribe(topic, "billing", pulsar.ConsumerType.Shared).close()
    for number in range(300):
        producer.send_async(str(number).encode(), None)
    for text in poison:
        producer.send_async(text.encode(), None)
    producer.flush()
    program = Program(broker, "poison.py", broker.service_url, topic)
    program.be_killed(random.Random(2))
    program.finish()
    assert {int(line.removeprefix("billed ")) for line in program.lines} == set(range(300))
    letters = client.subscribe(f"{topic}-dead", "look")
    found = set()
    while len(found) < len(poison):
        message = letters.receive(20_000)
        found.add(message.data().decode())
        letters.acknowledge(message)
    assert found == poison


def test_each_key_stays_with_its_worker(broker, client, topic):
    """share_by_key.py: of two workers one is killed; each handles all messages of its own keys, in order."""
    client.subscribe(topic, "orders", pulsar.ConsumerType.KeyShared).close()
    producer = client.create_producer(
        topic, batching_enabled=True, batching_type=pulsar.BatchingType.KeyBased, block_if_queue_full=True
    )
    keys = [f"customer-{number}" for number in range(20)]
    for number in range(2_000):
        producer.send_async(str(number).encode(), None, partition_key=keys[number % len(keys)])
    producer.flush()
    workers = [Program(broker, "share_by_key.py", broker.service_url, topic, str(one), "2") for one in range(2)]
    steady = workers[0].start()
    workers[1].be_killed(random.Random(3), times=2)
    workers[1].finish()
    assert workers[0].end(steady, None) == 0
    parts = pulsar.KeyHashRanges.full().split(2)
    handled = defaultdict(list)
    for part, worker in zip(parts, workers, strict=True):
        for line in worker.lines:
            key, number = line.split()
            assert pulsar.key_slot(key) in part
            handled[key].append(int(number))
    for at, key in enumerate(keys):
        first = list(dict.fromkeys(handled[key]))  # a killed worker may handle some again
        assert first == list(range(at, 2_000, len(keys)))


def test_a_worker_that_is_stopped_gets_nothing_twice(broker, client, topic):
    """worker.py: stopped by SIGTERM a few times, it handles every message once."""
    expected = send_numbers(client, topic, 3_000)
    program = Program(broker, "worker.py", broker.service_url, topic)
    dice = random.Random(4)
    while len(program.lines) < len(expected):
        process = program.start()
        with killed_if_silent(process):
            program.lines += next(([line] for line in process.stdout if is_said(line)), [])  # it is at work
        time.sleep(dice.uniform(0, 0.5))
        assert program.end(process, signal.SIGTERM) == 0
    assert sorted(map(int, program.lines)) == expected


def test_a_worker_that_is_killed_loses_nothing(broker, client, topic):
    """worker.py: killed a few times, it handles every message at least once."""
    expected = send_numbers(client, topic, 3_000)
    program = Program(broker, "worker.py", broker.service_url, topic)
    program.be_killed(random.Random(5))
    process = program.start()
    while left(client, topic):
        time.sleep(0.2)
    program.end(process, signal.SIGKILL)
    assert sorted(set(map(int, program.lines))) == expected


def test_an_async_worker_that_is_killed_loses_no_invoice(broker, client, topic, pulsar_topic_factory):
    """async_worker.py: killed a few times, there is at least one invoice for every order."""
    invoices = pulsar_topic_factory("invoices", broker=broker)
    expected = send_numbers(client, topic, 1_000, subscription="billing")
    written = client.subscribe(invoices, "s")
    program = Program(broker, "async_worker.py", broker.service_url, topic, invoices)
    program.be_killed(random.Random(6))
    process = program.start()
    found = set()
    while len(found) < len(expected):
        found.add(int(written.receive(30_000).data().removeprefix(b"invoice for ")))
    program.end(process, signal.SIGKILL)
    assert sorted(found) == expected


def test_a_faststream_service_that_is_killed_loses_no_invoice(broker, client, topic, pulsar_topic_factory):
    """faststream_service.py: killed and terminated amid its work, it bills every order; what is none is a letter."""
    invoices = pulsar_topic_factory("invoices", broker=broker)
    client.subscribe(topic, "billing", pulsar.ConsumerType.Shared).close()
    producer = client.create_producer(topic, block_if_queue_full=True)
    for number in range(2_000):
        order = {"number": number, "pieces": 2, "price": number}
        producer.send_async(json.dumps(order).encode(), None, partition_key=f"k{number}")
    producer.send_async(b'{"number": "none"}', None)
    producer.flush()
    written, letters = client.subscribe(invoices, "s"), client.subscribe(f"{topic}-billing-DLQ", "s")
    program = Program(broker, "faststream_service.py", broker.service_url, topic, invoices)
    program.be_killed(random.Random(8))
    process, found = program.start(), {}
    while len(found) < 2_000:
        invoice = written.receive(30_000)
        bill = json.loads(invoice.data())
        found[bill["order"]] = (bill["total"], invoice.partition_key())
        if len(found) == 500:
            program.end(process, signal.SIGKILL)
            process = program.start()
        if len(found) == 1_000:
            assert eventually(lambda: subscription_of(client, topic, "billing").consumers)  # it hears signals by then
            assert program.end(process, signal.SIGTERM) == 0
            process = program.start()
    letter = letters.receive(30_000)
    assert eventually(lambda: subscription_of(client, topic, "billing").consumers)
    assert program.end(process, signal.SIGTERM) == 0
    assert found == {number: (2 * number, f"k{number}") for number in range(2_000)}
    assert letter.data() == b'{"number": "none"}'
    assert "integer" in letter.properties()["reason"]
    assert subscription_of(client, topic, "billing").backlog_entries == 0


@pytest.mark.filterwarnings("default")
@BEHIND_A_PROXY
def test_the_tests_of_a_worker_pass(pulsar_broker_factory, tmp_path):
    """test_worker.py: its tests pass, with the plugin as a project of its own has it."""
    broker = pulsar_broker_factory("plain")
    arguments = ["-q", "-p", "no:cacheprovider", "-o", "addopts=", EXAMPLES / "test_worker.py"]
    if os.environ.get("PYTHONPATH"):  # from a checkout, where nothing is installed
        arguments += ["-p", "pulsar_ext.testing.plugin"]
    urls = {"PULSAR_URL": broker.service_url, "PULSAR_ADMIN_URL": broker.admin_url}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=tmp_path,
        env={**os.environ, **urls},
    )
    assert done.returncode == 0, done.stdout[-3000:]


def send_numbers(client, topic, count, subscription="work"):
    """Send so many numbers to a topic that has the subscription, and give them."""
    client.subscribe(topic, subscription, pulsar.ConsumerType.Shared).close()
    producer = client.create_producer(topic, block_if_queue_full=True)
    for number in range(count):
        producer.send_async(str(number).encode(), None)
    producer.flush()
    return list(range(count))


def left(client, topic):
    """How many entries the worker has not acknowledged."""
    return subscription_of(client, topic, "work").backlog_entries


def subscription_of(client, topic, name):
    """What the broker says of a subscription."""
    return client.context.admin_api().stats(topic, precise_backlog=True).subscriptions[name]
