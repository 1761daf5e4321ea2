"""What a broker calls duplicates and does not hold: found, sent under another name, and reported as it is."""

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
def broker(pulsar_broker_factory):
    """A broker that deduplicates every topic."""
    return pulsar_broker_factory("dedup")


@pytest.fixture
def proxy(broker, pulsar_fault_proxy):
    """What stands between the client and the broker."""
    return pulsar_fault_proxy(broker)


@pytest.fixture
def producer(broker, proxy, topic, client_factory, request):
    """An effectively-once producer behind the proxy, of the parameter's settings, with 0 to 3 on the topic."""
    return opened(client_factory(broker, service_url=proxy.service_url), topic, **request.param)


def opened(client, topic, **settings):
    """An effectively-once producer that has sent 0 to 3."""
    producer = client.create_producer(topic, producer_name="p", deduplication=True, **settings)
    for number in range(4):
        producer.send_async(b"%d" % number, None, sequence_id=number)
    producer.flush()
    return producer


def send_async(producer, first, last):
    """Send numbers as they are; give what each is told, with the id, in the order of the answers."""
    told = []
    for number in range(first, last + 1):
        properties = {"number": f"{number}"}
        producer.send_async(
            b"%d" % number,
            lambda result, message_id, number=number: told.append((number, str(result.name), message_id)),
            properties,
            sequence_id=number,
            partition_key=f"k{number % 2}",
        )
        properties["number"] = "changed by the application, which may"
    return told


def overtaken(producer, broker, proxy, topic, first, last):
    """Send numbers of which only the last arrives, as if the broker had refused the others, behind a new connection."""
    proxy.pause("to_broker")
    told = send_async(producer, first, last)
    overtake(broker, proxy, topic, last)
    return told


def overtake(broker, proxy, topic, last):
    """Store the last of the numbers that the proxy keeps back, in their producer's name, and let that connect again."""
    proxy.refuse()
    proxy.cut()
    client = official.Client(broker.service_url, logger=official.ConsoleLogger(official.LoggerLevel.Error))
    named = until(lambda: opened_officially(client, topic))
    named.send(b"%d" % last, sequence_id=last)
    client.close()
    proxy.resume()
    proxy.accept()


def opened_officially(client, topic):
    """The official client's producer of the name, None while the connection that was cut still has it."""
    with contextlib.suppress(official.ProducerBusy):
        return client.create_producer(topic, producer_name="p")


def persisted(told):
    """The numbers that were told as persisted, with their ids."""
    return {number: message_id for number, result, message_id in told if result == "Ok"}


def stored(client, admin, topic):
    """The numbers that a topic holds, in rising order."""
    count = sum(entry.message_count for entry in entries(admin, topic))
    return sorted(int(message.data()) for message in read(client, topic, count))


def names(admin, topic):
    """The names of a topic's producers, in the order of its entries."""
    return [entry.producer_name for entry in entries(admin, topic)]


KINDS = pytest.mark.parametrize(
    "producer", [SINGLE, IN_TWOS, BY_KEY], indirect=True, ids=["single", "in-twos", "by-key"]
)
ONE_BY_ONE = pytest.mark.parametrize("producer", [SINGLE], indirect=True, ids=["single"])


@KINDS
def test_what_the_broker_refused_and_calls_a_duplicate_is_stored_once(producer, broker, proxy, topic, client, admin):
    """4 to 8 never arrive, 9 of their name does: they are stored once, behind it, and reported with their ids."""
    told = overtaken(producer, broker, proxy, topic, 4, 9)
    producer.flush()
    again = persisted(told)
    assert set(range(4, 8)) <= set(again)
    assert [number for number, _, _ in told] == sorted(range(4, 10))
    assert stored(client, admin, topic) == sorted([*range(4), 9, *again])
    assert names(admin, topic).count("p+1") == len({(one.ledger_id(), one.entry_id()) for one in again.values()})
    for number, message_id in again.items():
        reader = client.create_reader(topic, message_id, start_message_id_inclusive=True)
        message = reader.read_next(5_000)
        assert (int(message.data()), message.properties()) == (number, {"number": f"{number}"})
        reader.close()


@pytest.mark.core
@KINDS
def test_a_duplicate_that_the_topic_holds_is_one(producer, proxy, topic, client, admin):
    """Answers to 4 to 9 are lost with the connection: all are duplicates, nothing is stored twice, and 10 follows."""
    proxy.pause("to_client")
    told = send_async(producer, 4, 9)
    until(lambda: sum(entry.message_count for entry in entries(admin, topic)) == 10)
    proxy.cut()
    proxy.resume()
    told += send_async(producer, 10, 11)
    producer.flush()
    assert [result for number, result, _ in sorted(told) if number < 10] == ["DuplicateMessage"] * 6
    assert stored(client, admin, topic) == list(range(12))
    assert set(names(admin, topic)) == {"p"}


@ONE_BY_ONE
def test_a_close_waits_for_what_is_looked_up(producer, broker, proxy, topic, client, admin):
    """A close right behind the connection's return leaves nothing without an outcome, and loses nothing."""
    told = overtaken(producer, broker, proxy, topic, 4, 9)
    until(producer.is_connected)
    producer.close()
    assert [result for _, result, _ in told] == ["Ok"] * 5 + ["DuplicateMessage"]
    assert stored(client, admin, topic) == list(range(10))


def test_a_close_waits_for_a_look_up_without_a_connection_too(broker, proxy, topic, client_factory, client, admin):
    """A close while the connection is away, and the admin API has not answered yet, loses nothing."""
    with HeldAdmin(broker.admin_url) as held:
        producer = opened(client_factory(broker, service_url=proxy.service_url, admin=held.url), topic)
        held.hold()
        told = overtaken(producer, broker, proxy, topic, 4, 9)
        assert held.asked.wait(20)
        proxy.refuse()
        proxy.cut()
        closing = threading.Thread(target=producer.close)
        closing.start()
        time.sleep(0.5)  # it must not have ended by then
        assert closing.is_alive()
        proxy.accept()
        held.release()
        closing.join()
    assert [result for _, result, _ in told] == ["Ok"] * 5 + ["DuplicateMessage"]
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


def test_a_process_is_killed_while_it_looks_them_up(broker, proxy, topic, client, admin):
    """Another one goes on in front of 4, though the broker's number is 9 by then, and each number is stored once."""
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
            admin.unload(topic)  # what is stored next is in another ledger, as behind a write that failed
            overtake(broker, proxy, topic, 9)
            assert held.asked.wait(20)
            process.kill()
        held.release()
    producer = client.create_producer(topic, producer_name="p", deduplication=True)
    assert producer.last_sequence_id_published() == 3
    told = send_async(producer, 4, 11)
    producer.flush()
    assert [number for number, result, _ in told if result != "Ok"] == [9]
    assert stored(client, admin, topic) == list(range(12))


@ONE_BY_ONE
def test_what_follows_waits_for_it_and_is_reported_behind_it(producer, broker, proxy, topic, client, admin):
    """Messages sent while duplicates are looked up are stored, and hear of it behind those."""
    told = overtaken(producer, broker, proxy, topic, 4, 9)
    more = []
    for number in range(10, 500):
        producer.send_async(
            b"%d" % number, lambda *_, number=number: more.append((number, len(told))), sequence_id=number
        )
    producer.flush()
    assert more == [(number, 6) for number in range(10, 500)]
    assert list(persisted(told)) == [4, 5, 6, 7, 8]
    assert stored(client, admin, topic) == list(range(500))
    assert producer.last_sequence_id_published() == 499


@ONE_BY_ONE
def test_it_may_happen_again_to_the_same_name(producer, broker, proxy, topic, client, admin):
    """The second time, too, what is missing is stored, under the same second name."""
    for first in (4, 8):
        overtaken(producer, broker, proxy, topic, first, first + 3)
        producer.flush()
    assert stored(client, admin, topic) == list(range(12))
    assert names(admin, topic).count("p+1") == 6


@pytest.mark.parametrize("chunking", [False, True])
def test_the_name_goes_on_where_it_was(broker, proxy, topic, client_factory, client, admin, chunking):
    """Opened again while what was sent under the other name stands last, the name goes on behind its highest id."""
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


def test_what_cannot_be_looked_up_fails_and_nothing_follows(broker, proxy, topic, client_factory, admin):
    """Without an answer of the admin API in time, the messages fail, and the error says what to do about them."""
    asked = PulsarAdmin(broker.admin_url, **broker.access.admin_options())
    client = client_factory(broker, service_url=proxy.service_url, admin=asked)
    producer = opened(client, topic, batching_enabled=False, send_timeout_millis=2_000)
    asked.close()
    told = overtaken(producer, broker, proxy, topic, 4, 9)
    with pytest.raises(official.UnknownError):
        producer.flush()
    assert [result for _, result, _ in told] == ["UnknownError"] * 6
    with pytest.raises(pulsar.ProducerBroken, match="by a producer of a new name"):
        producer.send(b"10", sequence_id=10)
    assert names(admin, topic) == ["p"] * 5


def until(ask, seconds=20):
    """Ask until the answer is true; the answer."""
    deadline = time.monotonic() + seconds
    while not (answer := ask()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return answer
