"""Requests are answered, by whoever is there, once; what is not answered raises in time, and harms no other."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from awaited import AwaitedClient, blocking_of
from chunked import THREE_CHUNKS, eventually, payload
from serving import Serving, echo

import pulsar_ext as pulsar

BOTH_CLIENTS = True
REPLIERS = "repliers"


def left_of(admin, topic, subscription=REPLIERS):
    return admin.stats(topic, precise_backlog=True).subscriptions[subscription].backlog_entries


@pytest.mark.core(awaited=True)
@pytest.mark.through
def test_each_request_gets_its_own_reply(client, topic, admin):
    """Fifty requests of ten threads at once: each has its own reply, and nothing is left of either."""
    with Serving(client, topic, echo), client.requester(topic) as requester:
        with ThreadPoolExecutor(10) as threads:
            replies = list(threads.map(lambda n: requester.request(b"%d" % n).data(), range(50)))
        assert replies == [b"re: %d" % n for n in range(50)]
        assert eventually(lambda: left_of(admin, topic) == 0)
        (name,) = admin.stats(requester.reply_topic).subscriptions
        assert eventually(lambda: left_of(admin, requester.reply_topic, name) == 0)
        reply_topic = requester.reply_topic
    assert admin.stats(reply_topic).subscriptions == {}


def test_requests_and_replies_are_whole(client, topic):
    """Three chunks each way, properties, keys and schemas; None is a reply without a value."""
    schema = pulsar.schema.StringSchema()

    def handle(message):
        assert message.partition_key() == "key"
        assert message.properties()["mine"] == "1"
        return {"nothing": None}.get(message.value(), message.value()[::-1])

    with (
        Serving(client, topic, handle, schema=schema, reply_schema=schema),
        client.requester(topic, schema=schema, reply_schema=schema) as requester,
    ):
        options = {"partition_key": "key", "properties": {"mine": "1"}}
        large = payload(7, THREE_CHUNKS).decode()
        assert requester.request(large, **options).value() == large[::-1]
        assert requester.request("nothing", **options).data() == b""


@pytest.mark.core
def test_many_replies_to_one_request(client, topic):
    """An iterator's replies come in order, as they are made; the first is also what `request()` gives."""
    may_end = threading.Event()

    def count(message):
        for number in range(int(message.data())):
            if number == 2:
                assert may_end.wait(30)
            yield b"%d" % number

    handler = _later(count) if _is_awaited(client) else count
    with Serving(client, topic, handler), client.requester(topic) as requester:
        replies = requester.request_many(b"4")
        assert [next(replies).data(), next(replies).data()] == [b"0", b"1"]
        may_end.set()
        assert [reply.data() for reply in replies] == [b"2", b"3"]
        assert requester.request(b"2").data() == b"0"
        assert list(requester.request_many(b"0")) == []
        with pytest.raises(pulsar.NoReply):
            requester.request(b"0")


def _is_awaited(client):
    return isinstance(client, AwaitedClient)


def _later(generate):
    """Give a handler that returns an iterator, whose steps may wait: they run in the loop, one by one."""
    return lambda message: _Steps(generate(message))


class _Steps:
    def __init__(self, steps):
        self._steps = steps

    def __aiter__(self):
        return self

    async def __anext__(self):
        end = object()
        step = await asyncio.to_thread(next, self._steps, end)
        if step is end:
            raise StopAsyncIteration
        return step


def test_several_repliers_answer_one_request(client, topic):
    """Subscriptions of their own each answer; without their number the time ends it."""
    names = ["a", "b", "c"]
    with client.requester(topic) as requester:
        servings = [
            Serving(client, topic, lambda _, name=name: name.encode(), subscription_name=name) for name in names
        ]
        with servings[0], servings[1], servings[2]:
            for options in ({"repliers": 3}, {"repliers": None, "timeout_ms": 3_000}):
                assert sorted(r.data().decode() for r in requester.request_many(b"who", **options)) == names
            with pytest.raises(pulsar.NoReply) as caught:
                list(requester.request_many(b"who", repliers=4, timeout_ms=3_000))
            assert caught.value.replies == 3


@pytest.mark.core
def test_a_handler_that_raises_is_told(client, topic, admin):
    """A `RequestFailed` with its text, another error with its name only; the request is done with."""

    def handle(message):
        if message.data() == b"mine":
            raise pulsar.RequestFailed("no such order")
        raise ValueError("password=secret")

    with Serving(client, topic, handle), client.requester(topic) as requester:
        with pytest.raises(pulsar.RequestFailed, match=r"^no such order$"):
            requester.request(b"mine")
        with pytest.raises(pulsar.RequestFailed, match=r"^The replier's handler raised ValueError\.$"):
            requester.request(b"other")
        assert eventually(lambda: left_of(admin, topic) == 0)


def test_what_an_action_is_taken_for_is_logged(client, topic, caplog):
    """With an action as `on_error` what the handler raised is in the log, for the requester is told nothing."""
    asked = []

    def handle(message):
        asked.append(message)
        if len(asked) == 1:
            raise ZeroDivisionError
        return b"answered"

    with Serving(client, topic, handle, on_error=pulsar.Redeliver()), client.requester(topic) as requester:
        assert requester.request(b"").data() == b"answered"
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [ZeroDivisionError]


def test_a_may_reply_to_that_raises_lets_nothing_pass(client, topic, admin, caplog):
    """What it raised is in the log, and the request is done with, rather than come again for ever."""

    def may_reply_to(*_):
        raise ZeroDivisionError

    with Serving(client, topic, echo, may_reply_to=may_reply_to), client.requester(topic) as requester:
        with pytest.raises(pulsar.NoReply):
            requester.request(b"", timeout_ms=1000)
        assert eventually(lambda: left_of(admin, topic) == 0)
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [ZeroDivisionError]


def test_on_error_has_it_come_again(client, topic):
    """With `on_error` a request whose handler raised once is redelivered, and answered then."""
    seen = []

    def handle(message):
        seen.append(message.data())
        if len(seen) == 1:
            raise ValueError(1)
        return echo(message)

    with Serving(client, topic, handle, on_error=pulsar.Redeliver()), client.requester(topic) as requester:
        assert requester.request(b"x").data() == b"re: x"
    assert seen == [b"x", b"x"]


@pytest.mark.core
def test_nobody_answers(client, topic):
    """A request without a replier raises `NoReply`, a `pulsar.Timeout`; its late reply is dropped."""
    with client.requester(topic, timeout_ms=500) as requester:
        with pytest.raises(pulsar.NoReply) as caught:
            requester.request(b"early")
        assert isinstance(caught.value, pulsar.Timeout)
        assert caught.value.replies == 0
        answered = []

        def handle(message):
            answered.append(message.data())
            return echo(message)

        with Serving(client, topic, handle):
            assert requester.request(b"late", timeout_ms=30_000).data() == b"re: late"
            assert eventually(lambda: sorted(answered) == [b"early", b"late"])
            assert requester.request(b"last", timeout_ms=30_000).data() == b"re: last"


def test_a_request_may_wait_for_ever(client, topic):
    """The longest time that can be given is no error behind the send: the reply comes."""
    with client.requester(topic, timeout_ms=sys.maxsize) as requester, Serving(client, topic, echo):
        assert requester.request(b"x").data() == b"re: x"


def test_a_lost_reply_is_one_timeout(client, topic):
    """A replier that acknowledges and never replies costs one request its time; those beside it are answered."""
    official = client.subscribe(topic, REPLIERS, pulsar.ConsumerType.Shared)
    with client.requester(topic) as requester, ThreadPoolExecutor(2) as threads:
        lost = threads.submit(requester.request, b"lost", timeout_ms=4_000)
        official.acknowledge(official.receive(10_000))
        official.close()
        with Serving(client, topic, echo):
            assert requester.request(b"kept").data() == b"re: kept"
            with pytest.raises(pulsar.NoReply):
                lost.result()


def test_who_writes_replies_by_hand(client, topic):
    """A plain consumer and producer answer with the two properties of the request, as a client in any language can."""
    consumer = client.subscribe(topic, "by-hand")
    with client.requester(topic) as requester, ThreadPoolExecutor(1) as threads:
        asked = threads.submit(requester.request, b"x")
        properties = consumer.receive(10_000).properties()
        client.create_producer(properties["REPLY_TOPIC"]).send(
            b"by hand", properties={"CORRELATION_ID": properties["CORRELATION_ID"]}
        )
        assert asked.result().data() == b"by hand"


def test_a_request_may_not_write_anywhere(client, topic, admin):
    """A request that wants its reply in another namespace is left out; `may_reply_to` may let it pass."""
    handled = []
    elsewhere = "persistent://public/default/" + topic.rsplit("/", 1)[1]
    properties = {"CORRELATION_ID": "x", "REPLY_TOPIC": elsewhere}
    with Serving(client, topic, handled.append):
        client.create_producer(topic).send(b"x", properties=properties)
        assert eventually(lambda: left_of(admin, topic) == 0)
    assert handled == []
    reply = client.subscribe(elsewhere, "s")
    with Serving(client, topic, echo, may_reply_to=lambda *_: True):
        client.create_producer(topic).send(b"x", properties=properties)
        assert reply.receive(10_000).data() == b"re: x"
    reply.unsubscribe()


def test_a_message_that_wants_no_reply(client, topic, admin):
    """It is handled, and nothing is sent."""
    handled = []
    with Serving(client, topic, lambda message: handled.append(message.data())):
        client.create_producer(topic).send(b"x")
        assert eventually(lambda: handled == [b"x"] and left_of(admin, topic) == 0)


def test_a_close_ends_who_waits(client, topic):
    """A close raises `AlreadyClosed` in requests that wait, and in later ones; closing again does nothing."""
    requester = client.requester(topic)
    with ThreadPoolExecutor(2) as threads:
        asked = threads.submit(requester.request, b"x")
        many = threads.submit(lambda: list(requester.request_many(b"y", repliers=None)))
        time.sleep(0.3)
        requester.close()
        requester.close()
        for one in (asked, many):
            with pytest.raises(pulsar.AlreadyClosed):
                one.result()
    with pytest.raises(pulsar.AlreadyClosed):
        requester.request(b"z")


def test_a_client_that_is_closed_ends_who_waits(client_factory, broker, topic):
    """So does the end of the client."""
    client = client_factory(broker)
    requester = client.requester(topic)
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(requester.request, b"x")
        time.sleep(0.3)
        client.close()
        with pytest.raises(pulsar.AlreadyClosed):
            asked.result()


def test_requesters_may_share_a_reply_topic(client, topic):
    """Two requesters of one reply topic each take their own replies."""
    shared = topic + "-answers"
    with (
        Serving(client, topic, echo),
        client.requester(topic, reply_topic=shared) as one,
        client.requester(topic, reply_topic=shared, subscription_name="other") as other,
    ):
        for number in range(5):
            assert one.request(b"one %d" % number).data() == b"re: one %d" % number
            assert other.request(b"other %d" % number).data() == b"re: other %d" % number
        assert blocking_of(one).reply_topic == shared


@pytest.mark.core
def test_what_cannot_be_is_refused(client, topic):
    """Nothing is opened, or sent."""
    for options in ({"timeout_ms": 0}, {"timeout_ms": 1.5}):
        with pytest.raises(pulsar.InvalidUse):
            client.requester(topic, **options)
    with pytest.raises(pulsar.InvalidUse):
        client.replier(topic, None)
    with client.requester(topic) as requester:
        for options in ({"timeout_ms": 0}, {"properties": {"REPLY_TOPIC": "x"}}):
            with pytest.raises(pulsar.InvalidUse):
                requester.request(b"x", **options)
        with pytest.raises(pulsar.InvalidUse):
            requester.request_many(b"x", repliers=0)
