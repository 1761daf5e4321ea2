"""Table views show every key and every change of a topic, also after lost connections."""

from __future__ import annotations

import asyncio
import random
import threading
import time

import pytest
from chunked import eventually, send_incomplete_message

import pulsar_ext as pulsar
from pulsar_ext.testing import FaultProxy

pytestmark = pytest.mark.filterwarnings("ignore::pulsar_ext.MixedKeyBatchWarning")

KEYS = 100


def send(client, topic, count):
    """Send messages in batches with alternating keys; return each key's last value."""
    producer = client.create_producer(topic, batching_enabled=True, block_if_queue_full=True)
    for number in range(count):
        producer.send_async(b"%d" % number, None, partition_key=f"k{number % KEYS}")
    producer.close()
    return {f"k{number % KEYS}": b"%d" % number for number in range(count)}


def shown(view):
    """Return the keys and values of a view."""
    found = {}
    view.for_each(lambda key, value: found.update({key: value}))
    return found


@pytest.mark.parametrize("partitions", [0, 3])
def test_view_of_many_messages_shows_every_key(client, admin, topic, partitions):
    """A view of 50,000 batched messages shows every key; the official client overflows a thread's stack."""
    if partitions:
        admin.create_partitioned_topic(topic, partitions)
    expected = send(client, topic, 50_000)
    view = client.create_table_view(topic)
    assert (len(view), view.get("k7"), view.get("none")) == (KEYS, expected["k7"], None)
    assert shown(view) == expected


def test_view_survives_a_cut_during_opening(client, pulsar_client_factory, broker, topic):
    """A view is complete although the connection is cut during its opening; officially some are empty."""
    expected = send(client, topic, 20_000)
    with FaultProxy.to(broker.service_url, broker.detours) as proxy:
        proxied = pulsar_client_factory(broker, service_url=proxy.service_url)
        for _ in range(10):
            cut = threading.Timer(random.uniform(0, 0.4), proxy.cut)
            cut.start()
            view = proxied.create_table_view(topic)
            cut.join()
            assert shown(view) == expected
            view.close()


def test_view_opens_with_an_incomplete_message(pulsar_client_factory, pulsar_broker_factory, pulsar_topic_factory):
    """A view of a topic that ends in an incomplete chunked message shows all keys and later changes."""
    broker = pulsar_broker_factory("small-chunks")
    client, topic = pulsar_client_factory(broker), pulsar_topic_factory(broker=broker)
    expected = send(client, topic, 100)
    send_incomplete_message(broker, client.context.admin_api(), topic)
    view = client.create_table_view(topic)
    assert shown(view) == expected
    client.create_producer(topic).send(b"new", partition_key="k0")
    assert eventually(lambda: view.get("k0") == b"new")


@pytest.mark.core
def test_view_follows_the_topic(client, topic):
    """A view shows changed, removed and new keys, and notifies listeners, even if one raises."""
    schema = pulsar.schema.StringSchema()
    producer = client.create_producer(topic, schema=schema)
    producer.send("1", partition_key="a")
    producer.send("1", partition_key="b")
    producer.send("without a key")
    view = client.create_table_view(topic, "mine", schema)
    changes, raised = [], []

    def fail(key, value):
        raised.append((key, value))
        if len(raised) > 2:
            raise RuntimeError("a mistake in the program's listener")

    view.for_each_and_listen(fail)
    view.for_each_and_listen(lambda key, value: changes.append((key, value)))
    assert sorted(changes) == sorted(raised) == [("a", "1"), ("b", "1")]
    producer.send("2", partition_key="a")
    producer.send("", partition_key="b")
    producer.send("1", partition_key="c")
    assert eventually(lambda: changes[2:] == raised[2:] == [("a", "2"), ("b", ""), ("c", "1")])
    assert shown(view) == {"a": "2", "c": "1"}
    assert "mine" in str(view)


@pytest.mark.core
def test_listener_added_in_a_listener_gets_later_changes(client, topic):
    """A listener that is added during a notification gets only later changes."""
    producer, changes = client.create_producer(topic), []
    view = client.create_table_view(topic)

    def add(key, _):
        changes.append(("first", key))
        view.listen(lambda key, _: changes.append(("added", key)))

    view.listen(add)
    producer.send(b"1", partition_key="a")
    producer.send(b"1", partition_key="b")
    assert eventually(lambda: len(changes) >= 3)
    assert changes == [("first", "a"), ("first", "b"), ("added", "b")]


@pytest.mark.core
def test_view_has_the_methods_of_a_dict(client, run, topic):
    """A view has a dict's keys, values and items, and notifies listeners of changes only, also in asyncio."""
    producer = client.create_producer(topic)
    for key in ("a", "b"):
        producer.send(b"1", partition_key=key)
    view = client.create_table_view(topic)
    assert (view.keys(), view.values(), view.items()) == (["a", "b"], [b"1", b"1"], [("a", b"1"), ("b", b"1")])
    assert ("a" in view, "c" in view, list(view)) == (True, False, ["a", "b"])
    changes = []
    view.listen(lambda key, value: changes.append((key, value)))
    producer.send(b"2", partition_key="a")
    producer.send(b"", partition_key="b")
    assert eventually(lambda: changes == [("a", b"2"), ("b", b"")])
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


def test_no_change_is_missed_by_a_new_listener(client, topic):
    """A listener that is added while values change gets every value from its first one on."""
    producer = client.create_producer(topic)
    producer.send(b"0", partition_key="k")
    view = client.create_table_view(topic)
    changes = [[] for _ in range(20)]
    for number in range(1, 400):
        producer.send_async(b"%d" % number, None, partition_key="k")
        if number % 20 == 0:
            view.for_each_and_listen(lambda _, value, into=changes[number // 20]: into.append(int(value)))
    assert eventually(lambda: view.get("k") == b"399")
    assert all(one == list(range(one[0], 400)) for one in changes[1:])


def test_view_is_one_consumer_until_closed_or_dropped(client, admin, topic):
    """A closed view keeps its values, also after its client's close; a dropped view is closed within a second."""
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


def test_view_continues_after_cuts(client, pulsar_client_factory, broker, topic):
    """A view shows the last value after twenty cuts."""
    producer = client.create_producer(topic)
    with FaultProxy.to(broker.service_url, broker.detours) as proxy:
        view = pulsar_client_factory(broker, service_url=proxy.service_url).create_table_view(topic)
        for number in range(20):
            producer.send(b"%d" % number, partition_key="k")
            proxy.cut()
            time.sleep(0.02)
        assert eventually(lambda: view.get("k") == b"19")


def test_view_opens_during_writes(client, pulsar_client_factory, broker, topic):
    """A view opens with the first messages, although more are written in each round trip."""
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
        opening = threading.Timer(60, opened.set)  # so that the test fails instead of hanging
        opening.start()
        view = far.create_table_view(topic)
        is_in_time = not opened.is_set()
        opened.set()
        opening.cancel()
        writer.join()
        assert is_in_time
        assert set(view.keys()) == set(expected)
