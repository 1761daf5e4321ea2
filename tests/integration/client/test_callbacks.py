"""Callbacks and listeners that raise, wait, or outlive their client do no harm."""

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
"""For the test broker."""


@pytest.mark.core
@pytest.mark.blocking_only("awaited sends have no callbacks")
def test_a_send_callback_that_raises_harms_nobody(client, topic, caplog):
    """All 300 callbacks of batches are called though every third raises; flush returns; nothing is lost."""
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
def test_waiting_inside_a_send_callback_is_refused_not_deadlocked(client, topic):
    """send, flush and close of the same client raise InvalidUse there; send_async works."""
    producer = client.create_producer(topic)
    answers, second = [], threading.Event()

    def callback(result, message_id):
        for use in (lambda: producer.send(b"x"), producer.flush, producer.close, client.close):
            try:
                use()
            except pulsar.InvalidUse:
                answers.append("refused")
        producer.send_async(b"second", lambda *_: second.set())

    producer.send_async(b"first", callback)
    assert second.wait(HANG_SECONDS)
    assert answers == ["refused"] * 4
    assert contents(client, topic) == [b"first", b"second"]


@pytest.mark.blocking_only("awaited sends have no callbacks")
def test_a_failure_callback_may_wait_for_another_client_whose_send_fails_too(client_factory, broker, topic):
    """It hears of that failure, a call of its own client is refused, and a third client goes on meanwhile."""
    one, another, third = (
        client_factory(broker).create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=1)
        for _ in range(3)
    )
    heard, told, over = [], threading.Event(), threading.Event()

    def fall_back(*_):
        for producer in (one, another):
            try:
                producer.send(TOO_BIG)
            except (pulsar.InvalidUse, pulsar.MessageTooBig) as error:
                heard.append(type(error))
        heard.append(told.wait(HANG_SECONDS))
        over.set()

    one.send_async(TOO_BIG, fall_back)
    third.send_async(TOO_BIG, lambda *_: told.set())
    assert over.wait(HANG_SECONDS)
    assert heard == [pulsar.InvalidUse, pulsar.MessageTooBig, True]


@pytest.mark.core
def test_a_listener_that_raises_goes_on_and_its_message_stays(client, topic, caplog):
    """All messages are heard though every second raises; those come again to the next consumer."""
    heard = []

    def listen(consumer, message):
        heard.append(message.data())
        if len(heard) % 2:
            raise RuntimeError("the application's own error")
        consumer.acknowledge(message)

    consumer = client.subscribe(topic, "s", pulsar.ConsumerType.Shared, message_listener=listen)
    producer = client.create_producer(topic)
    for index in range(20):
        producer.send(b"%d" % index)
    assert eventually(lambda: len(heard) == 20)
    consumer.close()
    again = client.subscribe(topic, "s", pulsar.ConsumerType.Shared)
    assert sorted(message.data() for message in drain(again.receive, 10)) == sorted(heard[0::2])
    assert "the application's own error" in caplog.text


@pytest.mark.blocking_only("awaited listeners are tasks of the loop, which the C++ client does not keep")
@pytest.mark.parametrize("how", ["subscribe", "create_reader"])
def test_a_closed_client_with_a_listener_is_freed(broker, topic, how):
    """Nothing is left of a client whose listener refers to its consumer, once it is closed and dropped."""

    def use():
        client, heard = pulsar.Client(broker.service_url, **broker.client_options(pulsar)), threading.Event()

        def listen(consumer, message):
            heard.set()
            assert consumer is opened

        opened = (
            client.subscribe(topic, "s", message_listener=listen)
            if how == "subscribe"
            else client.create_reader(topic, pulsar.MessageId.earliest, reader_listener=listen)
        )
        client.create_producer(topic).send(b"x")
        assert heard.wait(HANG_SECONDS)
        client.close()
        return weakref.ref(client), weakref.ref(opened)

    kept = use()
    assert eventually(lambda: gc.collect() >= 0 and [one() for one in kept] == [None, None])


@pytest.mark.blocking_only("awaited listeners are tasks of the loop, which the C++ client does not keep")
@pytest.mark.parametrize("how", ["subscribe", "create_reader"])
def test_a_listener_goes_on_though_nobody_keeps_its_client(client, broker, topic, how):
    """A client with a listener that is dropped, not closed, hears every message; officially it soon hears nothing."""
    heard = []

    def start():
        dropped = pulsar.Client(broker.service_url, **broker.client_options(pulsar))
        if how == "subscribe":
            dropped.subscribe(topic, "s", message_listener=lambda _, message: heard.append(message.data()))
        else:
            start = pulsar.MessageId.earliest
            dropped.create_reader(topic, start, reader_listener=lambda _, message: heard.append(message.data()))
        return weakref.ref(dropped)

    kept = start()
    gc.collect()
    producer = client.create_producer(topic)
    for index in range(10):
        producer.send(b"%d" % index)
    assert eventually(lambda: heard == [b"%d" % index for index in range(10)])
    kept().close()
