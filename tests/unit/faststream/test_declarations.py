"""Declarations of a FastStream broker: invalid arguments, AsyncAPI, policies and topics."""

from __future__ import annotations

import asyncio
import inspect
import logging
import re

import pytest
from faststream import AckPolicy
from faststream.exceptions import IncorrectState, SetupError
from faststream.specification import AsyncAPI

import pulsar_ext as pulsar
from pulsar_ext.asyncio import Client
from pulsar_ext.faststream import (
    PulsarBroker,
    PulsarPublisher,
    PulsarRoute,
    PulsarRouter,
    TestPulsarBroker,
    annotations,
)
from pulsar_ext.faststream.config import Topics
from pulsar_ext.faststream.message import PulsarMessage as Message

TOKEN = "secret-token"
EARLIEST = pulsar.InitialPosition.Earliest


@pytest.fixture
def service():
    """Return a broker that is not connected."""
    return PulsarBroker("pulsar://localhost:1")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"schema": str}, "a codec or a decoder"),
        ({"consumer_type": pulsar.ConsumerType.Shared}, "subscription_type"),
        ({"subscription_name": "s"}, "it is called subscription"),
        ({"message_listener": print}, "decorate a handler"),
        ({"max_workers": 0}, ">= 1, got 0"),
        ({"max_records": 0, "batch": True}, "max_records must be an int >= 1, got 0"),
        ({"topic": 5}, "not 5"),
        ({"topic": []}, "not \\[\\]"),
        ({"initial_postion": EARLIEST}, "did you mean initial_position"),
        ({"receiver_queue_size": "1"}, "receiver_queue_size.*'int'"),
        ({"initial_position": 1}, "initial_position"),
        ({"dead_letter_policy": 5}, "dead_letter_policy must be"),
        ({"ack_group_time_ms": -1}, "ack_group_time_ms"),
        ({"negative_ack_redelivery_backoff": 5}, "negative_ack_redelivery_backoff"),
        ({"subscription_properties": 5}, "subscription_properties"),
        ({"topic": re.compile("t.*"), "enable_retry": True}, "retry"),
        ({"subscription_type": 1}, "consumer_type"),
        ({"ack_policy": "manual"}, "AckPolicy"),
        ({"interceptors": [5]}, "ConsumerInterceptor"),
        ({"consumer_event_listener": 5}, "consumer_event_listener"),
    ],
)
def test_invalid_subscriber_raises(service, options, message):
    """An argument that is invalid, or has another name here, raises at the declaration."""
    topic = options.pop("topic", "t")
    with pytest.raises(SetupError, match=message):
        service.subscriber(topic, subscription="s", **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"protocl": "x"}, "no argument protocl"),
        ({"io_threads": "many"}, "io_threads .* int, got 'many'"),
        ({"use_tls": 1}, "use_tls"),
        ({"ack_policy": "manual"}, "AckPolicy"),
        ({"producer_options": {"batching": True}}, "did you mean batching_"),
        ({"producer_options": {"batching_enabled": True}}, "Batching and chunking"),
    ],
)
def test_invalid_broker_raises(options, message):
    """An argument that neither the client nor a producer accepts raises at the declaration."""
    with pytest.raises(SetupError, match=message):
        PulsarBroker("pulsar://localhost:1", **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batching": True}, "did you mean batching_"),
        ({"send_timeout_millis": "1"}, "send_timeout_millis"),
        ({"batching_enabled": True, "chunking_enabled": True}, "Batching and chunking"),
        ({"interceptors": [5]}, "ProducerInterceptor"),
    ],
)
def test_invalid_publisher_raises(service, options, message):
    """An argument that a producer does not accept raises at the declaration."""
    with pytest.raises(SetupError, match=message):
        service.publisher("t", producer_options=options)


def test_incompatible_publisher_options_raise_at_start(service):
    """A publisher's options that are incompatible with its broker's raise at the start, in memory too."""
    publisher = service.publisher("t", producer_options={"batching_enabled": True})
    for start in (lambda: start_in_memory(service), lambda: asyncio.run(service.start())):
        with pytest.raises(SetupError, match="Batching and chunking"):
            start()
    assert publisher.topic == "t"


@pytest.mark.parametrize("make", [lambda: PulsarRoute(print, "t"), lambda: PulsarPublisher("t", ky="k")])
def test_invalid_route_raises(make):
    """A route without a subscription, or with an unknown argument of a publisher, raises."""
    with pytest.raises(TypeError, match=r"subscription|ky"):
        make()


def test_routes_accept_the_brokers_arguments(service):
    """The route classes have each option of `subscriber()` and `publisher()`."""
    for method, kind in ((service.subscriber, PulsarRoute), (service.publisher, PulsarPublisher)):
        options, accepted = (inspect.signature(one).parameters.keys() for one in (method, kind))
        assert options <= accepted


def test_router_of_another_broker_raises(service):
    """A router of another broker raises an error with its type."""
    with pytest.raises(SetupError, match="not object"):
        service.include_router(object())


def test_calls_before_connecting_raise(service):
    """Before `start()`, publishing and receiving raise an error that names `start()`."""
    subscriber = service.subscriber("t", subscription="s")

    async def steps():
        for call in (service.publish("x", "t"), service.request("x", "t"), subscriber.get_one(), subscriber.start()):
            with pytest.raises(IncorrectState, match="start"):
                await call

    asyncio.run(steps())


def test_get_one_raises_with_handlers(service):
    """`get_one()` of a subscriber with handlers raises."""
    subscriber = service.subscriber("t", subscription="s")

    @subscriber
    async def handle(body: str):
        pass

    with pytest.raises(AssertionError, match="has handlers"):
        asyncio.run(subscriber.get_one())


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (("x",), {}, "needs a topic"),
        (("x", "t"), {"headers": {"number": 5}}, "'number' is of type int"),
    ],
)
def test_invalid_message_is_not_published(arguments, options, message):
    """A message without a topic, or with a header that is not text, is not sent."""

    async def steps():
        async with PulsarBroker("pulsar://localhost:1") as connected:
            with pytest.raises(pulsar.InvalidUse, match=message):
                await connected.publish(*arguments, **options)

    asyncio.run(steps())


def test_secrets_are_not_shown():
    """Credentials in a service URL and tokens are neither in AsyncAPI nor in the broker's repr."""
    service = PulsarBroker(
        f"pulsar+ssl://user:{TOKEN}@one:6651,{TOKEN}@two:6651?token={TOKEN}",
        authentication=pulsar.AuthenticationToken(TOKEN),
    )
    service.subscriber("t", subscription="s")
    assert service.specification.url == ["pulsar+ssl://one:6651,two:6651"]
    shown = [
        AsyncAPI(service).to_specification().to_json(),
        repr(service),
        repr(service.config),
        str(service.subscribers),
    ]
    assert [one for one in shown if TOKEN in one] == []


def test_async_api(service):
    """Subscribers and publishers have a channel for each topic, with its payload, unless they are hidden."""
    router = PulsarRouter(prefix="a.")

    @router.subscriber(["b", "c"], subscription="s", description="what it does")
    @router.publisher("d", title="Out")
    async def handle(number: int) -> str:
        return str(number)

    service.include_router(router)
    service.subscriber(re.compile("e.*"), subscription="s", include_in_schema=False)
    written = AsyncAPI(service).to_specification().to_jsonable()
    addresses = {channel["address"] for channel in written["channels"].values()}
    assert addresses == {"a.b", "a.c", "a.d"}
    assert next(iter(written["servers"].values()))["protocol"] == "pulsar"
    assert '"integer"' in AsyncAPI(service).to_specification().to_json()


def test_async_api_names_the_protocol():
    """`protocol=` and `protocol_version=` describe the server; the address may have no protocol."""
    options = {"specification_url": "events.example", "protocol": "pulsar", "protocol_version": "4"}
    written = AsyncAPI(PulsarBroker("pulsar://localhost:1", **options)).to_specification().to_jsonable()
    (server,) = written["servers"].values()
    assert (server["host"], server["protocol"], server["protocolVersion"]) == ("events.example", "pulsar", "4")


@pytest.mark.parametrize(
    ("own", "router", "broker", "expected"),
    [
        ({}, {}, {}, AckPolicy.NACK_ON_ERROR),
        ({}, {}, {"ack_policy": AckPolicy.ACK}, AckPolicy.ACK),
        ({}, {"ack_policy": AckPolicy.ACK_FIRST}, {"ack_policy": AckPolicy.ACK}, AckPolicy.ACK_FIRST),
        ({"ack_policy": AckPolicy.MANUAL}, {"ack_policy": AckPolicy.ACK_FIRST}, {}, AckPolicy.MANUAL),
    ],
)
def test_nearest_ack_policy_applies(own, router, broker, expected):
    """The policy is the subscriber's, its router's or its broker's; by default failed messages are redelivered."""
    of_router = PulsarRouter(**router)
    PulsarBroker("pulsar://localhost:1", routers=[of_router], **broker)
    assert of_router.subscriber("t", subscription="s", **own).ack_policy is expected


BARE = {"Client": Client, "PulsarMessage": Message, "PulsarBroker": PulsarBroker}


@pytest.mark.parametrize("name", BARE)
def test_bare_class_raises_with_its_annotation(service, name):
    """A handler annotated with a bare class raises at the start, with the annotation to use."""
    handler_of(service, BARE[name])
    with pytest.raises(SetupError, match=rf"from pulsar_ext\.faststream\.annotations import {name}\n"):
        start_in_memory(service)


@pytest.mark.parametrize("annotation", [annotations.Client, annotations.PulsarMessage, annotations.PulsarBroker])
def test_annotations_are_accepted(service, annotation):
    """Each annotation can be used in a handler."""
    handler_of(service, annotation)
    start_in_memory(service)


def handler_of(service, annotation):
    """Declare a handler with an argument of this annotation."""

    async def handle(body: str, wanted: annotation):
        pass

    handle.__annotations__ = {"body": str, "wanted": annotation}
    service.subscriber("t", subscription="s")(handle)


def start_in_memory(service):
    """Start a broker in memory, and stop it."""

    async def steps():
        async with TestPulsarBroker(service):
            pass

    asyncio.run(steps())


@pytest.mark.parametrize(
    ("declared", "prefix", "topic", "included"),
    [
        ("t", "", "persistent://public/default/t", True),
        ("t", "a.", "a.t", True),
        ("t", "a.", "t", False),
        (["t", "u"], "", "u", True),
        (["t", "u"], "", "non-persistent://public/default/u", False),
        (re.compile("persistent://public/default/t.*"), "", "tu", True),
        (re.compile("public/default/t.*"), "", "tu", True),
        (re.compile("t.*"), "public/default/a.", "a.tu", True),
        (re.compile("t.*"), "public/default/a.", "abtu", False),
        (re.compile("t|u"), "public/default/a.", "a.u", True),
        (re.compile("t|u"), "public/default/a.", "a.tu", False),
    ],
)
def test_topics_include_matching_names(declared, prefix, topic, included):
    """Short and full names match; a prefix is added to each name, and is not a pattern before a pattern."""
    assert Topics(declared).include(topic, prefix) is included


def test_log_lines_have_whole_ids(service):
    """The id of a chunked message is longer than FastStream's column, and is not truncated."""
    service._setup_logger()
    record = logging.makeLogRecord({"message_id": "1234567:10:-1;1234567:19:-1"})
    assert logging.getLogger("faststream.access.pulsar").filter(record)
    assert record.message_id == "1234567:10:-1;1234567:19:-1"
