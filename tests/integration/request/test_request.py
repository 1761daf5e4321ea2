"""Each request is answered once, by any replier; an unanswered one raises in time, and affects no other."""

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
    """Fifty requests of ten threads at once get their own replies, and no backlog remains."""
    with Serving(client, topic, echo), client.requester(topic) as requester:
        with ThreadPoolExecutor(10) as threads:
            replies = list(threads.map(lambda n: requester.request(b"%d" % n).data(), range(50)))
        assert replies == [b"re: %d" % n for n in range(50)]
        assert eventually(lambda: left_of(admin, topic) == 0)
        (name,) = admin.stats(requester.reply_topic).subscriptions
        assert eventually(lambda: left_of(admin, requester.reply_topic, name) == 0)
        reply_topic = requester.reply_topic
    assert admin.stats(reply_topic).subscriptions == {}


def test_requests_and_replies_are_transferred_completely(client, topic):
    """Three chunks each way, properties, keys and schemas are transferred; None is a reply without a value."""
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
    """An iterator's replies arrive in order, as they are made; `request()` returns the first one."""
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
    """Return a handler that returns an async iterator, whose steps may wait without blocking the event loop."""
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
    """Repliers with their own subscriptions each answer; without their number the timeout ends the replies."""
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
def test_handlers_error_is_reported_to_the_requester(client, topic, admin):
    """A `RequestFailed` is reported with its text, another error by its class, and the request is acknowledged."""

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


def test_error_of_a_handler_with_on_error_is_logged(client, topic, caplog):
    """With an action as `on_error`, the handler's error is logged, as the requester gets no report."""
    asked = []

    def handle(message):
        asked.append(message)
        if len(asked) == 1:
            raise ZeroDivisionError
        return b"answered"

    with Serving(client, topic, handle, on_error=pulsar.Redeliver()), client.requester(topic) as requester:
        assert requester.request(b"").data() == b"answered"
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [ZeroDivisionError]


def test_raising_may_reply_to_rejects_the_request(client, topic, admin, caplog):
    """An error of `may_reply_to` is logged, and the request is acknowledged instead of redelivered forever."""

    def may_reply_to(*_):
        raise ZeroDivisionError

    with Serving(client, topic, echo, may_reply_to=may_reply_to), client.requester(topic) as requester:
        with pytest.raises(pulsar.NoReply):
            requester.request(b"", timeout_ms=1000)
        assert eventually(lambda: left_of(admin, topic) == 0)
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [ZeroDivisionError]


def test_on_error_redelivers_the_request(client, topic):
    """With `on_error`, a request whose handler raised once is redelivered and then answered."""
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
def test_unanswered_request_raises_no_reply(client, topic):
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


def test_request_accepts_the_longest_timeout(client, topic):
    """The longest possible timeout causes no error, and the reply arrives."""
    with client.requester(topic, timeout_ms=sys.maxsize) as requester, Serving(client, topic, echo):
        assert requester.request(b"x").data() == b"re: x"


def test_lost_reply_delays_no_other_request(client, topic):
    """A replier that acknowledges without a reply delays only that request; others are answered."""
    official = client.subscribe(topic, REPLIERS, pulsar.ConsumerType.Shared)
    with client.requester(topic) as requester, ThreadPoolExecutor(2) as threads:
        lost = threads.submit(requester.request, b"lost", timeout_ms=4_000)
        official.acknowledge(official.receive(10_000))
        official.close()
        with Serving(client, topic, echo):
            assert requester.request(b"kept").data() == b"re: kept"
            with pytest.raises(pulsar.NoReply):
                lost.result()


def test_plain_clients_can_reply(client, topic):
    """A plain consumer and producer answer with the two properties of the request, as a client in any language can."""
    consumer = client.subscribe(topic, "by-hand")
    with client.requester(topic) as requester, ThreadPoolExecutor(1) as threads:
        asked = threads.submit(requester.request, b"x")
        properties = consumer.receive(10_000).properties()
        client.create_producer(properties["REPLY_TOPIC"]).send(
            b"by hand", properties={"CORRELATION_ID": properties["CORRELATION_ID"]}
        )
        assert asked.result().data() == b"by hand"


def test_reply_topic_in_another_namespace_is_rejected(client, topic, admin):
    """A request for a reply in another namespace is acknowledged unhandled, unless `may_reply_to` allows it."""
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


def test_message_without_reply_topic_is_handled(client, topic, admin):
    """A message without a reply topic is handled, and no reply is sent."""
    handled = []
    with Serving(client, topic, lambda message: handled.append(message.data())):
        client.create_producer(topic).send(b"x")
        assert eventually(lambda: handled == [b"x"] and left_of(admin, topic) == 0)


def test_requester_close_ends_pending_requests(client, topic):
    """A close raises `AlreadyClosed` in pending and in later requests; closing again does nothing."""
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


def test_client_close_ends_pending_requests(client_factory, broker, topic):
    """The end of the client raises `AlreadyClosed` in pending requests."""
    client = client_factory(broker)
    requester = client.requester(topic)
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(requester.request, b"x")
        time.sleep(0.3)
        client.close()
        with pytest.raises(pulsar.AlreadyClosed):
            asked.result()


def test_requesters_may_share_a_reply_topic(client, topic):
    """Two requesters with one reply topic each get their own replies."""
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
def test_invalid_setting_raises(client, topic):
    """An invalid setting raises, and nothing is opened or sent."""
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
