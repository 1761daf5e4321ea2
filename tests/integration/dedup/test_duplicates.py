"""Messages that a broker reports as duplicates without having them are sent under another name."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time

import pulsar as official
import pytest
from held_admin import HeldAdmin
from stored import entries, read

import pulsar_ext as pulsar
from pulsar_ext.admin import PulsarAdmin

pytestmark = pytest.mark.filterwarnings("ignore::pulsar_ext.MixedKeyBatchWarning")
SINGLE = {"batching_enabled": False}
IN_TWOS = {"batching_enabled": True, "batching_max_messages": 2, "batching_max_publish_delay_ms": 60_000}
BY_KEY = {**IN_TWOS, "batching_type": pulsar.BatchingType.KeyBased}


@pytest.fixture
def broker(deduplicating):
    """A broker that deduplicates this test's topics."""
    return deduplicating


@pytest.fixture
def proxy(broker, pulsar_fault_proxy):
    """A proxy between the client and the broker."""
    return pulsar_fault_proxy(broker)


@pytest.fixture
def producer(broker, proxy, topic, client_factory, request):
    """An effectively-once producer connected through the proxy, with the parameter's settings, that has sent 0 to 3."""
    return opened(client_factory(broker, service_url=proxy.service_url), topic, **request.param)


def opened(client, topic, **settings):
    """Return an effectively-once producer that has sent 0 to 3."""
    producer = client.create_producer(topic, producer_name="p", deduplication=True, **settings)
    for number in range(4):
        producer.send_async(b"%d" % number, None, sequence_id=number)
    producer.flush()
    return producer


def send_async(producer, first, last):
    """Send integers; return a list that gets each outcome and message id, in the order of the callbacks."""
    reported = []
    for number in range(first, last + 1):
        properties = {"number": f"{number}"}
        producer.send_async(
            b"%d" % number,
            lambda result, message_id, number=number: reported.append((number, str(result.name), message_id)),
            properties,
            sequence_id=number,
            partition_key=f"k{number % 2}",
        )
        properties["number"] = "changed by the application later"
    return reported


def overtaken(producer, broker, proxy, topic, first, last):
    """Send integers of which only the last is stored, as if the broker had rejected the others, and reconnect."""
    proxy.pause("to_broker")
    reported = send_async(producer, first, last)
    overtake(broker, proxy, topic, last)
    return reported


def overtake(broker, proxy, topic, last):
    """Store the last integer that the proxy holds back, under the producer name, and let the producer reconnect."""
    proxy.refuse()
    proxy.cut()
    client = official.Client(broker.service_url, logger=official.ConsoleLogger(official.LoggerLevel.Error))
    named = until(lambda: opened_officially(client, topic))
    named.send(b"%d" % last, sequence_id=last)
    client.close()
    proxy.resume()
    proxy.accept()


def opened_officially(client, topic):
    """Return an official producer of the name, or None while the broker still counts the cut connection."""
    with contextlib.suppress(official.ProducerBusy):
        return client.create_producer(topic, producer_name="p")


def persisted(reported):
    """Return the integers reported as persisted, with their ids."""
    return {number: message_id for number, result, message_id in reported if result == "Ok"}


def stored(client, admin, topic):
    """Return the integers on a topic, sorted."""
    count = sum(entry.message_count for entry in entries(admin, topic))
    return sorted(int(message.data()) for message in read(client, topic, count))


def names(admin, topic):
    """Return the producer names of a topic's entries, in order."""
    return [entry.producer_name for entry in entries(admin, topic)]


KINDS = pytest.mark.parametrize(
    "producer", [SINGLE, IN_TWOS, BY_KEY], indirect=True, ids=["single", "in-twos", "by-key"]
)
ONE_BY_ONE = pytest.mark.parametrize("producer", [SINGLE], indirect=True, ids=["single"])


@KINDS
def test_rejected_messages_reported_as_duplicates_are_stored(producer, broker, proxy, topic, client, admin):
    """4 to 8 never arrive but 9 does: they are stored once, after it, and reported with their ids."""
    reported = overtaken(producer, broker, proxy, topic, 4, 9)
    producer.flush()
    again = persisted(reported)
    assert set(range(4, 8)) <= set(again)
    assert [number for number, _, _ in reported] == sorted(range(4, 10))
    assert stored(client, admin, topic) == sorted([*range(4), 9, *again])
    assert names(admin, topic).count("p+1") == len({(sent.ledger_id(), sent.entry_id()) for sent in again.values()})
    for number, message_id in again.items():
        reader = client.create_reader(topic, message_id, start_message_id_inclusive=True)
        message = reader.read_next(5_000)
        assert (int(message.data()), message.properties()) == (number, {"number": f"{number}"})
        reader.close()


@pytest.mark.core
@KINDS
def test_stored_duplicates_are_reported_as_duplicates(producer, proxy, topic, client, admin):
    """Receipts of 4 to 9 are lost: all are duplicates, nothing is stored twice, and 10 follows."""
    proxy.pause("to_client")
    reported = send_async(producer, 4, 9)
    until(lambda: sum(entry.message_count for entry in entries(admin, topic)) == 10)
    proxy.cut()
    proxy.resume()
    reported += send_async(producer, 10, 11)
    producer.flush()
    assert [result for number, result, _ in sorted(reported) if number < 10] == ["DuplicateMessage"] * 6
    assert stored(client, admin, topic) == list(range(12))
    assert set(names(admin, topic)) == {"p"}


@ONE_BY_ONE
def test_close_waits_for_duplicate_lookup(producer, broker, proxy, topic, client, admin):
    """A close just after the reconnection leaves no message without an outcome, and loses none."""
    reported = overtaken(producer, broker, proxy, topic, 4, 9)
    until(producer.is_connected)
    producer.close()
    assert [result for _, result, _ in reported] == ["Ok"] * 5 + ["DuplicateMessage"]
    assert stored(client, admin, topic) == list(range(10))


def test_close_waits_for_lookup_while_disconnected(broker, proxy, topic, client_factory, client, admin):
    """A close while disconnected and without an answer of the admin API loses nothing."""
    with HeldAdmin(broker.admin_url) as held:
        producer = opened(client_factory(broker, service_url=proxy.service_url, admin=held.url), topic)
        held.hold()
        reported = overtaken(producer, broker, proxy, topic, 4, 9)
        assert held.asked.wait(20)
        proxy.refuse()
        proxy.cut()
        closing = threading.Thread(target=producer.close)
        closing.start()
        time.sleep(0.5)  # the close must still wait then
        assert closing.is_alive()
        proxy.accept()
        held.release()
        closing.join()
    assert [result for _, result, _ in reported] == ["Ok"] * 5 + ["DuplicateMessage"]
    assert stored(client, admin, topic) == list(range(10))


KILLED = """
import os, sys
import pulsar, pulsar_ext

service_url, admin_url, topic = sys.argv[1:]
logger = pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull)
client = pulsar_ext.Client(service_url, admin=admin_url, logger=logger)
producer = client.create_producer(topic, producer_name="p", deduplication=True)
for first, last in ((0, 3), (4, 9)):
    for number in range(first, last + 1):
        producer.send_async(b"%d" % number, None, sequence_id=number)
    print("sent", flush=True)
    sys.stdin.readline()
"""


def test_process_killed_during_lookup_loses_nothing(broker, proxy, topic, client, admin):
    """The next process resumes before 4, although the broker's id is 9, and each integer is stored once."""
    with HeldAdmin(broker.admin_url) as held:
        command = [sys.executable, "-c", KILLED, proxy.service_url, held.url, topic]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        with subprocess.Popen(command, text=True, **pipes) as process:
            assert process.stdout.readline() == "sent\n"
            until(lambda: admin.internal_stats(topic).number_of_entries == 4)
            held.hold()
            proxy.pause("to_broker")
            process.stdin.write("on\n")
            process.stdin.flush()
            assert process.stdout.readline() == "sent\n"
            admin.unload(topic)  # starts a new ledger, as a failed write does
            overtake(broker, proxy, topic, 9)
            assert held.asked.wait(20)
            process.kill()
        held.release()
    producer = client.create_producer(topic, producer_name="p", deduplication=True)
    assert producer.last_sequence_id_published() == 3
    reported = send_async(producer, 4, 11)
    producer.flush()
    assert [number for number, result, _ in reported if result != "Ok"] == [9]
    assert stored(client, admin, topic) == list(range(12))


@ONE_BY_ONE
def test_messages_during_lookup_are_reported_after_it(producer, broker, proxy, topic, client, admin):
    """Messages sent during a look-up are stored, and reported after the duplicates."""
    reported = overtaken(producer, broker, proxy, topic, 4, 9)
    more = []
    for number in range(10, 500):
        producer.send_async(
            b"%d" % number, lambda *_, number=number: more.append((number, len(reported))), sequence_id=number
        )
    producer.flush()
    assert more == [(number, 6) for number in range(10, 500)]
    assert list(persisted(reported)) == [4, 5, 6, 7, 8]
    assert stored(client, admin, topic) == list(range(500))
    assert producer.last_sequence_id_published() == 499


@ONE_BY_ONE
def test_second_recovery_reuses_the_derived_name(producer, broker, proxy, topic, client, admin):
    """Missing messages are stored the second time too, under the same derived name."""
    for first in (4, 8):
        overtaken(producer, broker, proxy, topic, first, first + 3)
        producer.flush()
    assert stored(client, admin, topic) == list(range(12))
    assert names(admin, topic).count("p+1") == 6


@pytest.mark.parametrize("chunking", [False, True])
def test_name_resumes_after_recovery(broker, proxy, topic, client_factory, client, admin, chunking):
    """The name resumes after its highest id, although entries of the derived name are last."""
    producer = opened(client_factory(broker, service_url=proxy.service_url), topic, chunking_enabled=chunking)
    overtaken(producer, broker, proxy, topic, 4, 9)
    producer.flush()
    producer.close()
    assert names(admin, topic)[-1] == "p+1"
    again = client.create_producer(topic, producer_name="p", deduplication=True, chunking_enabled=chunking)
    assert again.last_sequence_id_published() == 9
    for number in range(4, 12):
        again.send_async(b"%d" % number, None, sequence_id=number)
    again.flush()
    assert stored(client, admin, topic) == list(range(12))


def test_failed_lookup_stops_the_producer(broker, proxy, topic, client_factory, admin):
    """Without an answer of the admin API the messages fail, and the error names the remedy."""
    asked = PulsarAdmin(broker.admin_url, **broker.access.admin_options())
    client = client_factory(broker, service_url=proxy.service_url, admin=asked)
    producer = opened(client, topic, batching_enabled=False, send_timeout_millis=2_000)
    asked.close()
    reported = overtaken(producer, broker, proxy, topic, 4, 9)
    with pytest.raises(official.UnknownError):
        producer.flush()
    assert [result for _, result, _ in reported] == ["UnknownError"] * 6
    with pytest.raises(pulsar.ProducerBroken, match="by a producer of a new name"):
        producer.send(b"10", sequence_id=10)
    assert names(admin, topic) == ["p"] * 5


def until(ask, seconds=20):
    """Poll until the result is true, and return it."""
    deadline = time.monotonic() + seconds
    while not (answer := ask()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return answer
