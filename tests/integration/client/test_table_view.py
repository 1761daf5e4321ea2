"""Table views: every key of a topic, however many messages, whatever happens to the connection, and every change."""

from __future__ import annotations

import asyncio
import random
import threading
import time

import pytest
from chunked import eventually, send_half

import pulsar_ext as pulsar
from pulsar_ext.testing import FaultProxy

pytestmark = pytest.mark.filterwarnings("ignore::pulsar_ext.MixedKeyBatchWarning")

KEYS = 100


def send(client, topic, count):
    """Send so many messages in batches, to the keys by turns; give what each key has in the end."""
    producer = client.create_producer(topic, batching_enabled=True, block_if_queue_full=True)
    for number in range(count):
        producer.send_async(b"%d" % number, None, partition_key=f"k{number % KEYS}")
    producer.close()
    return {f"k{number % KEYS}": b"%d" % number for number in range(count)}


def shown(view):
    """What a view shows."""
    found = {}
    view.for_each(lambda key, value: found.update({key: value}))
    return found


@pytest.mark.parametrize("partitions", [0, 3])
def test_a_view_of_many_messages_shows_every_key(client, admin, topic, partitions):
    """50,000 messages in batches, with which the official client overflows a thread's stack."""
    if partitions:
        admin.create_partitioned_topic(topic, partitions)
    expected = send(client, topic, 50_000)
    view = client.create_table_view(topic)
    assert (len(view), view.get("k7"), view.get("none")) == (KEYS, expected["k7"], None)
    assert shown(view) == expected


def test_a_view_is_whole_though_it_is_cut_amid_its_opening(client, pulsar_client_factory, broker, topic):
    """Ten openings, each with a cut amid it: officially some are empty, without an error."""
    expected = send(client, topic, 20_000)
    with FaultProxy.to(broker.service_url, broker.detours) as proxy:
        cut_off = pulsar_client_factory(broker, service_url=proxy.service_url)
        for _ in range(10):
            cut = threading.Timer(random.uniform(0, 0.4), proxy.cut)
            cut.start()
            view = cut_off.create_table_view(topic)
            cut.join()
            assert shown(view) == expected
            view.close()


def test_a_view_opens_though_the_topic_ends_in_half_a_message(
    pulsar_client_factory, pulsar_broker_factory, pulsar_topic_factory
):
    """A producer was killed amid a chunked message: the view shows what there is, and follows what comes."""
    broker = pulsar_broker_factory("small-chunks")
    client, topic = pulsar_client_factory(broker), pulsar_topic_factory(broker=broker)
    expected = send(client, topic, 100)
    send_half(broker, client.context.admin_api(), topic)
    view = client.create_table_view(topic)
    assert shown(view) == expected
    client.create_producer(topic).send(b"new", partition_key="k0")
    assert eventually(lambda: view.get("k0") == b"new")


@pytest.mark.core
def test_a_view_follows_the_topic(client, topic):
    """A new value, a removed key and a new key are shown, and listeners hear of each; one that raises harms nobody."""
    schema = pulsar.schema.StringSchema()
    producer = client.create_producer(topic, schema=schema)
    producer.send("1", partition_key="a")
    producer.send("1", partition_key="b")
    producer.send("without a key")
    view = client.create_table_view(topic, "mine", schema)
    heard, raised = [], []

    def fail(key, value):
        raised.append((key, value))
        if len(raised) > 2:
            raise RuntimeError("a mistake in the program's listener")

    view.for_each_and_listen(fail)
    view.for_each_and_listen(lambda key, value: heard.append((key, value)))
    assert sorted(heard) == sorted(raised) == [("a", "1"), ("b", "1")]
    producer.send("2", partition_key="a")
    producer.send("", partition_key="b")
    producer.send("1", partition_key="c")
    assert eventually(lambda: heard[2:] == raised[2:] == [("a", "2"), ("b", ""), ("c", "1")])
    assert shown(view) == {"a": "2", "c": "1"}
    assert "mine" in str(view)


@pytest.mark.core
def test_a_listener_that_is_added_by_another_hears_of_later_changes(client, topic):
    """Added while a change is told, it does not hear of that one."""
    producer, heard = client.create_producer(topic), []
    view = client.create_table_view(topic)

    def add(key, _):
        heard.append(("first", key))
        view.listen(lambda key, _: heard.append(("added", key)))

    view.listen(add)
    producer.send(b"1", partition_key="a")
    producer.send(b"1", partition_key="b")
    assert eventually(lambda: len(heard) >= 3)
    assert heard == [("first", "a"), ("first", "b"), ("added", "b")]


@pytest.mark.core
def test_a_view_is_asked_as_a_dict(client, run, topic):
    """Keys, values and items are what there is, also in a loop; a listener hears changes only. Awaited as well."""
    producer = client.create_producer(topic)
    for key in ("a", "b"):
        producer.send(b"1", partition_key=key)
    view = client.create_table_view(topic)
    assert (view.keys(), view.values(), view.items()) == (["a", "b"], [b"1", b"1"], [("a", b"1"), ("b", b"1")])
    assert ("a" in view, "c" in view, list(view)) == (True, False, ["a", "b"])
    heard = []
    view.listen(lambda key, value: heard.append((key, value)))
    producer.send(b"2", partition_key="a")
    producer.send(b"", partition_key="b")
    assert eventually(lambda: heard == [("a", b"2"), ("b", b"")])
    assert dict(view.items()) == {"a": b"2"}

    async def awaited(client):
        async with await client.create_table_view(topic) as view:
            changes = []
            await view.listen(lambda key, value: changes.append((key, value)))
            assert (view.keys(), view.values(), view.items()) == (["a"], [b"2"], [("a", b"2")])
            assert ("a" in view, "b" in view, list(view)) == (True, False, ["a"])
            producer.send(b"3", partition_key="c")
            await asyncio.to_thread(eventually, lambda: changes == [("c", b"3")])
            assert changes == [("c", b"3")]

    run(awaited)


def test_no_change_is_missed_between_the_keys_and_the_changes(client, topic):
    """Listeners that come while values change hear each value from their first one on."""
    producer = client.create_producer(topic)
    producer.send(b"0", partition_key="k")
    view = client.create_table_view(topic)
    heard = [[] for _ in range(20)]
    for number in range(1, 400):
        producer.send_async(b"%d" % number, None, partition_key="k")
        if number % 20 == 0:
            view.for_each_and_listen(lambda _, value, into=heard[number // 20]: into.append(int(value)))
    assert eventually(lambda: view.get("k") == b"399")
    assert all(one == list(range(one[0], 400)) for one in heard[1:])


def test_a_view_is_one_consumer_until_it_is_closed_or_dropped(client, admin, topic):
    """Closed, again and behind its client too, it shows what it has; dropped, it is closed within a second."""
    expected = send(client, topic, 200)
    view, other = client.create_table_view(topic, "mine"), client.create_table_view(topic)
    assert sum(name.startswith("mine") for name in admin.subscriptions(topic)) == 1
    del other
    assert eventually(lambda: len(admin.subscriptions(topic)) == 1)
    view.close()
    view.close()
    assert eventually(lambda: not admin.subscriptions(topic))
    last = client.create_table_view(topic)
    client.close()
    assert shown(view) == shown(last) == expected
    assert eventually(lambda: not any(thread.name == "pulsar-ext-table-view" for thread in threading.enumerate()))


def test_a_view_goes_on_behind_cuts(client, pulsar_client_factory, broker, topic):
    """Twenty cuts while values change: the last value is shown."""
    producer = client.create_producer(topic)
    with FaultProxy.to(broker.service_url, broker.detours) as proxy:
        view = pulsar_client_factory(broker, service_url=proxy.service_url).create_table_view(topic)
        for number in range(20):
            producer.send(b"%d" % number, partition_key="k")
            proxy.cut()
            time.sleep(0.02)
        assert eventually(lambda: view.get("k") == b"19")


def test_a_view_opens_while_others_write(client, pulsar_client_factory, broker, topic):
    """It opens with what was there at the beginning, though more is written in each round trip to the broker."""
    expected, opened = send(client, topic, KEYS), threading.Event()
    producer = client.create_producer(topic)

    def write():
        while not opened.wait(0.001):
            producer.send_async(b"later", None, partition_key="k0")

    with FaultProxy.to(broker.service_url, broker.detours) as proxy:
        far = pulsar_client_factory(broker, service_url=proxy.service_url)
        proxy.delay(0.1)
        writer = threading.Thread(target=write)
        writer.start()
        opening = threading.Timer(60, opened.set)  # where it never opens the test fails, and does not hang
        opening.start()
        view = far.create_table_view(topic)
        is_in_time = not opened.is_set()
        opened.set()
        opening.cancel()
        writer.join()
        assert is_in_time
        assert set(view.keys()) == set(expected)
