"""Programs of examples/, killed at random points and restarted, lose no message.

`outbox.py` is tested in tests/integration/dedup, `async_service.py` in tests/integration/asyncio, and jobs like
`word_count.py` in tests/integration/spark.
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
from ways import OWN_PROXY

import pulsar_ext as pulsar

pytestmark = pytest.mark.standalone_only("runs examples, which take a URL and no certificates", ways=("mtls",))

EXAMPLES = Path(__file__).parents[3] / "examples"
KILLS = 4
_SECONDS = 120


def is_own_output(line):
    """Return True if a line is the program's own output, not the C++ client's log."""
    return not re.match(r"\d{4}-\d\d-\d\d ", line)


@contextlib.contextmanager
def kill_after_timeout(process):
    """Kill a process unless the block ends within two minutes."""
    timer = threading.Timer(_SECONDS, process.kill)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class Program:
    """An example that is killed and restarted; `lines` has its output.

    Args:
        broker: the broker of the program's arguments and environment.
        name: the file's name.
        arguments: more arguments.
    """

    def __init__(self, broker, name, *arguments):
        # Without -u, which writes a line and its end separately, with the C++ client's log in between.
        self._command = [sys.executable, EXAMPLES / name, *arguments]
        self._environment = {**os.environ, "PULSAR_ADMIN_URL": broker.admin_url}
        self.lines: list[str] = []

    def start(self):
        """Start the program."""
        return subprocess.Popen(
            self._command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=self._environment
        )

    def end(self, process, number):
        """Send the process a signal, if any, wait for its end, and add its output to `lines`."""
        if number is not None:
            process.send_signal(number)
        with kill_after_timeout(process), process.stdout:
            self.lines += filter(is_own_output, process.stdout.read().splitlines())
        return process.wait()

    def kill_at_random(self, dice, times=KILLS):
        """Start and kill the program several times, at random times."""
        for _ in range(times):
            process = self.start()
            time.sleep(dice.uniform(0.8, 2.5))
            self.end(process, signal.SIGKILL)

    def finish(self):
        """Run the program to its end."""
        assert self.end(self.start(), None) == 0, self.lines[-5:]


@pytest.fixture
def broker(pulsar_broker_factory):
    """A plain broker."""
    return pulsar_broker_factory("plain")


@pytest.fixture
def client(broker, pulsar_client_factory):
    """A client of the broker."""
    return pulsar_client_factory(broker)


@pytest.fixture
def topic(broker, pulsar_topic_factory):
    """A topic on the broker."""
    return pulsar_topic_factory(broker=broker)


def test_killed_indexer_indexes_every_document(broker, client, topic, tmp_path):
    """store_ids.py: killed while it indexes, it finally has every id, and finds a document of several chunks."""
    producer = client.create_producer(topic, chunking_enabled=True, block_if_queue_full=True)
    producer.send(b"x" * 6_000_000, properties={"name": "large"})
    for number in range(2_000):
        producer.send_async(b"x", None, properties={"name": f"report {number}"})
    producer.flush()
    database = tmp_path / "ids.db"
    program = Program(broker, "store_ids.py", "index", broker.service_url, topic, database)
    program.kill_at_random(random.Random(1))
    program.finish()
    with sqlite3.connect(database) as rows:
        assert rows.execute("SELECT count(*) FROM ids").fetchone() == (2_001,)
    for name, size in (("large", 6_000_000), ("report 1234", 1)):
        show = Program(broker, "store_ids.py", "show", broker.service_url, topic, database, name)
        show.finish()
        assert show.lines[-1].startswith(f"{name}: {size} bytes, ")


def test_killed_worker_bills_or_dead_letters_orders(broker, client, topic):
    """poison.py: killed while it works, it bills every order, and only poison messages become dead letters."""
    producer = client.create_producer(topic, batching_enabled=True)
    poison = {f"poison {number}" for number in range(3)}
    client.subscribe(topic, "billing", pulsar.ConsumerType.Shared).close()
    for number in range(300):
        producer.send_async(str(number).encode(), None)
    for text in poison:
        producer.send_async(text.encode(), None)
    producer.flush()
    program = Program(broker, "poison.py", broker.service_url, topic)
    program.kill_at_random(random.Random(2))
    program.finish()
    assert {int(line.removeprefix("billed ")) for line in program.lines} == set(range(300))
    letters = client.subscribe(f"{topic}-dead", "look")
    found = set()
    while len(found) < len(poison):
        message = letters.receive(20_000)
        found.add(message.data().decode())
        letters.acknowledge(message)
    assert found == poison


def test_killed_worker_keeps_its_keys(broker, client, topic):
    """share_by_key.py: one of two workers is killed, and each handles all messages of its keys, in order."""
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
    workers[1].kill_at_random(random.Random(3), times=2)
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
        first = list(dict.fromkeys(handled[key]))  # a killed worker may handle some twice
        assert first == list(range(at, 2_000, len(keys)))


def test_stopped_worker_handles_messages_once(broker, client, topic):
    """worker.py: stopped by SIGTERM several times, it handles every message once."""
    expected = send_numbers(client, topic, 3_000)
    program = Program(broker, "worker.py", broker.service_url, topic)
    dice = random.Random(4)
    while len(program.lines) < len(expected):
        process = program.start()
        with kill_after_timeout(process):
            program.lines += next(([line] for line in process.stdout if is_own_output(line)), [])  # it works now
        time.sleep(dice.uniform(0, 0.5))
        assert program.end(process, signal.SIGTERM) == 0
    assert sorted(map(int, program.lines)) == expected


def test_killed_worker_handles_every_message(broker, client, topic):
    """worker.py: killed several times, it handles every message at least once."""
    expected = send_numbers(client, topic, 3_000)
    program = Program(broker, "worker.py", broker.service_url, topic)
    program.kill_at_random(random.Random(5))
    process = program.start()
    while backlog(client, topic):
        time.sleep(0.2)
    program.end(process, signal.SIGKILL)
    assert sorted(set(map(int, program.lines))) == expected


def test_killed_async_worker_writes_every_invoice(broker, client, topic, pulsar_topic_factory):
    """async_worker.py: killed several times, it writes at least one invoice for every order."""
    invoices = pulsar_topic_factory("invoices", broker=broker)
    expected = send_numbers(client, topic, 1_000, subscription="billing")
    written = client.subscribe(invoices, "s")
    program = Program(broker, "async_worker.py", broker.service_url, topic, invoices)
    program.kill_at_random(random.Random(6))
    process = program.start()
    found = set()
    while len(found) < len(expected):
        found.add(int(written.receive(30_000).data().removeprefix(b"invoice for ")))
    program.end(process, signal.SIGKILL)
    assert sorted(found) == expected


def test_killed_faststream_service_bills_every_order(broker, client, topic, pulsar_topic_factory):
    """faststream_service.py: killed and terminated, it bills every order; an invalid order is a dead letter."""
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
    program.kill_at_random(random.Random(8))
    process, found = program.start(), {}
    while len(found) < 2_000:
        invoice = written.receive(30_000)
        bill = json.loads(invoice.data())
        found[bill["order"]] = (bill["total"], invoice.partition_key())
        if len(found) == 500:
            program.end(process, signal.SIGKILL)
            process = program.start()
        if len(found) == 1_000:
            assert eventually(lambda: subscription_of(client, topic, "billing").consumers)  # it handles signals by then
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
@OWN_PROXY
def test_example_tests_pass(pulsar_broker_factory, tmp_path):
    """test_worker.py passes with the installed plugin, like in another project."""
    broker = pulsar_broker_factory("plain")
    arguments = ["-q", "-p", "no:cacheprovider", "-o", "addopts=", EXAMPLES / "test_worker.py"]
    if os.environ.get("PYTHONPATH"):  # from a checkout, without an installation
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
    """Create the subscription, send `count` numbers to its topic, and return them."""
    client.subscribe(topic, subscription, pulsar.ConsumerType.Shared).close()
    producer = client.create_producer(topic, block_if_queue_full=True)
    for number in range(count):
        producer.send_async(str(number).encode(), None)
    producer.flush()
    return list(range(count))


def backlog(client, topic):
    """Return the number of entries in the worker's backlog."""
    return subscription_of(client, topic, "work").backlog_entries


def subscription_of(client, topic, name):
    """Return the broker's statistics of a subscription."""
    return client.context.admin_api().stats(topic, precise_backlog=True).subscriptions[name]
