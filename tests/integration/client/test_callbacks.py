"""Callbacks and listeners that raise, block, or outlive their client have no side effects."""

from __future__ import annotations

import gc
import threading
import weakref

import pytest
from chunked import drain, eventually
from programs import HANG_SECONDS
from stored import contents

import pulsar_ext as pulsar

BOTH_CLIENTS = True
TOO_BIG = b"x" * 300_000
"""Above the test broker's maximum message size."""


@pytest.mark.core
@pytest.mark.blocking_only("awaited sends have no callbacks")
def test_send_callback_may_raise(client, topic, caplog):
    """All 300 callbacks of batches are called though some raise, flush returns, and no message is lost."""
    producer = client.create_producer(topic, batching_enabled=True, batching_max_messages=100)
    results = []

    def callback(result, message_id):
        results.append(result)
        if len(results) % 3 == 0:
            raise RuntimeError("the application's own error")
        if len(results) % 7 == 0:
            raise SystemExit

    for index in range(300):
        producer.send_async(b"%d" % index, callback)
    producer.flush()
    assert eventually(lambda: len(results) == 300)
    assert set(results) == {pulsar.Result.Ok}
    assert contents(client, topic) == [b"%d" % index for index in range(300)]
    assert "the application's own error" in caplog.text


@pytest.mark.core
@pytest.mark.blocking_only("awaited sends have no callbacks")
def test_blocking_calls_in_a_send_callback_raise(client, topic):
    """send, flush and close of the same client raise InvalidUse in a callback; send_async works."""
    producer = client.create_producer(topic)
    outcomes, second = [], threading.Event()

    def callback(result, message_id):
        for use in (lambda: producer.send(b"x"), producer.flush, producer.close, client.close):
            try:
                use()
            except pulsar.InvalidUse:
                outcomes.append("InvalidUse")
        producer.send_async(b"second", lambda *_: second.set())

    producer.send_async(b"first", callback)
    assert second.wait(HANG_SECONDS)
    assert outcomes == ["InvalidUse"] * 4
    assert contents(client, topic) == [b"first", b"second"]


@pytest.mark.blocking_only("awaited sends have no callbacks")
def test_failure_callback_may_use_another_client(client_factory, broker, topic):
    """A callback gets the failure of another client's send, may not use its own, and blocks no third client."""
    one, another, third = (
        client_factory(broker).create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=1)
        for _ in range(3)
    )
    received, third_failed, over = [], threading.Event(), threading.Event()

    def fall_back(*_):
        for producer in (one, another):
            try:
                producer.send(TOO_BIG)
            except (pulsar.InvalidUse, pulsar.MessageTooBig) as error:
                received.append(type(error))
        received.append(third_failed.wait(HANG_SECONDS))
        over.set()

    one.send_async(TOO_BIG, fall_back)
    third.send_async(TOO_BIG, lambda *_: third_failed.set())
    assert over.wait(HANG_SECONDS)
    assert received == [pulsar.InvalidUse, pulsar.MessageTooBig, True]


@pytest.mark.core
def test_listener_may_raise(client, topic, caplog):
    """All messages are delivered though every second call raises; unacknowledged ones are redelivered later."""
    received = []

    def listen(consumer, message):
        received.append(message.data())
        if len(received) % 2:
            raise RuntimeError("the application's own error")
        consumer.acknowledge(message)

    consumer = client.subscribe(topic, "s", pulsar.ConsumerType.Shared, message_listener=listen)
    producer = client.create_producer(topic)
    for index in range(20):
        producer.send(b"%d" % index)
    assert eventually(lambda: len(received) == 20)
    consumer.close()
    again = client.subscribe(topic, "s", pulsar.ConsumerType.Shared)
    assert sorted(message.data() for message in drain(again.receive, 10)) == sorted(received[0::2])
    assert "the application's own error" in caplog.text


@pytest.mark.blocking_only("awaited listeners are tasks of the loop, which the C++ client does not keep")
@pytest.mark.parametrize("opened_by", ["subscribe", "create_reader"])
def test_closed_client_with_a_listener_is_freed(broker, topic, opened_by):
    """A client whose listener refers to its consumer is freed once it is closed and dropped."""

    def use():
        client, received = pulsar.Client(broker.service_url, **broker.client_options(pulsar)), threading.Event()

        def listen(consumer, message):
            received.set()
            assert consumer is opened

        opened = (
            client.subscribe(topic, "s", message_listener=listen)
            if opened_by == "subscribe"
            else client.create_reader(topic, pulsar.MessageId.earliest, reader_listener=listen)
        )
        client.create_producer(topic).send(b"x")
        assert received.wait(HANG_SECONDS)
        client.close()
        return weakref.ref(client), weakref.ref(opened)

    kept = use()
    assert eventually(lambda: gc.collect() >= 0 and [one() for one in kept] == [None, None])


@pytest.mark.blocking_only("awaited listeners are tasks of the loop, which the C++ client does not keep")
@pytest.mark.parametrize("opened_by", ["subscribe", "create_reader"])
def test_listener_of_a_dropped_client_continues(client, broker, topic, opened_by):
    """A dropped client that is not closed delivers every message to its listener; officially it soon stops."""
    received = []

    def start():
        dropped = pulsar.Client(broker.service_url, **broker.client_options(pulsar))
        if opened_by == "subscribe":
            dropped.subscribe(topic, "s", message_listener=lambda _, message: received.append(message.data()))
        else:
            start = pulsar.MessageId.earliest
            dropped.create_reader(topic, start, reader_listener=lambda _, message: received.append(message.data()))
        return weakref.ref(dropped)

    kept = start()
    gc.collect()
    producer = client.create_producer(topic)
    for index in range(10):
        producer.send(b"%d" % index)
    assert eventually(lambda: received == [b"%d" % index for index in range(10)])
    kept().close()
