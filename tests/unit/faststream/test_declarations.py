"""What a FastStream broker is asked for: what it refuses, what it shows, and which policy and topics come of it."""

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
    """A broker that is not connected."""
    return PulsarBroker("pulsar://localhost:1")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"schema": str}, "a codec or a decoder"),
        ({"consumer_type": pulsar.ConsumerType.Shared}, "subscription_type"),
        ({"subscription_name": "s"}, "it is called subscription"),
        ({"message_listener": print}, "decorate a handler"),
        ({"max_workers": 0}, "1 or more, not 0"),
        ({"max_records": 0, "batch": True}, "max_records .* 1 or more, not 0"),
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
def test_a_subscriber_that_cannot_be(service, options, said):
    """An argument that is not valid, or has another name here, is refused where it stands."""
    topic = options.pop("topic", "t")
    with pytest.raises(SetupError, match=said):
        service.subscriber(topic, subscription="s", **options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"protocl": "x"}, "no argument protocl"),
        ({"io_threads": "many"}, "io_threads .* int, got 'many'"),
        ({"use_tls": 1}, "use_tls"),
        ({"ack_policy": "manual"}, "AckPolicy"),
        ({"producer_options": {"batching": True}}, "did you mean batching_"),
        ({"producer_options": {"batching_enabled": True}}, "Batching and chunking"),
    ],
)
def test_a_broker_that_cannot_be(options, said):
    """An argument that the client or a producer does not take is refused where it stands."""
    with pytest.raises(SetupError, match=said):
        PulsarBroker("pulsar://localhost:1", **options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"batching": True}, "did you mean batching_"),
        ({"send_timeout_millis": "1"}, "send_timeout_millis"),
        ({"batching_enabled": True, "chunking_enabled": True}, "Batching and chunking"),
        ({"interceptors": [5]}, "ProducerInterceptor"),
    ],
)
def test_a_publisher_that_cannot_be(service, options, said):
    """An argument that a producer does not take is refused where it stands."""
    with pytest.raises(SetupError, match=said):
        service.publisher("t", producer_options=options)


def test_options_of_a_publisher_and_its_broker(service):
    """A publisher's options that do not go with those of its broker are refused at the start, in memory as well."""
    publisher = service.publisher("t", producer_options={"batching_enabled": True})
    for start in (lambda: start_in_memory(service), lambda: asyncio.run(service.start())):
        with pytest.raises(SetupError, match="Batching and chunking"):
            start()
    assert publisher.topic == "t"


@pytest.mark.parametrize("make", [lambda: PulsarRoute(print, "t"), lambda: PulsarPublisher("t", ky="k")])
def test_a_route_that_cannot_be(make):
    """A route without a subscription, and an argument that publishers do not have, raise where they stand."""
    with pytest.raises(TypeError, match=r"subscription|ky"):
        make()


def test_routes_take_what_the_broker_takes(service):
    """Each option of `subscriber()` and `publisher()` is one of the classes for routes."""
    for method, kind in ((service.subscriber, PulsarRoute), (service.publisher, PulsarPublisher)):
        options, taken = (inspect.signature(one).parameters.keys() for one in (method, kind))
        assert options <= taken


def test_a_router_of_another_broker(service):
    """It is refused by its name."""
    with pytest.raises(SetupError, match="not object"):
        service.include_router(object())


def test_before_it_is_connected(service):
    """Nothing is published or received, and the error says what to call."""
    subscriber = service.subscriber("t", subscription="s")

    async def steps():
        for call in (service.publish("x", "t"), service.request("x", "t"), subscriber.get_one(), subscriber.start()):
            with pytest.raises(IncorrectState, match="start"):
                await call

    asyncio.run(steps())


def test_a_subscriber_with_handlers_gives_no_single_messages(service):
    """`get_one()` says that the handlers get them."""
    subscriber = service.subscriber("t", subscription="s")

    @subscriber
    async def handle(body: str):
        pass

    with pytest.raises(AssertionError, match="has handlers"):
        asyncio.run(subscriber.get_one())


@pytest.mark.parametrize(
    ("arguments", "options", "said"),
    [
        (("x",), {}, "needs a topic"),
        (("x", "t"), {"headers": {"number": 5}}, "'number' is of type int"),
    ],
)
def test_a_message_that_cannot_be_published(arguments, options, said):
    """Without a topic, or with a header that is no text, nothing is sent."""

    async def steps():
        async with PulsarBroker("pulsar://localhost:1") as connected:
            with pytest.raises(pulsar.InvalidUse, match=said):
                await connected.publish(*arguments, **options)

    asyncio.run(steps())


def test_secrets_are_not_shown():
    """What stands before an @ of a service URL, and a token, is neither in AsyncAPI nor in what the broker prints."""
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
    """Subscribers and publishers have a channel for each topic, with its payload; what is hidden is not there."""
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
    """`protocol=` and `protocol_version=` are those of the server; the address may be one without a protocol."""
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
def test_the_nearest_policy_counts(own, router, broker, expected):
    """The subscriber's, its router's, its broker's; without any, what fails comes again."""
    of_router = PulsarRouter(**router)
    PulsarBroker("pulsar://localhost:1", routers=[of_router], **broker)
    assert of_router.subscriber("t", subscription="s", **own).ack_policy is expected


BARE = {"Client": Client, "PulsarMessage": Message, "PulsarBroker": PulsarBroker}


@pytest.mark.parametrize("name", BARE)
def test_a_bare_class_is_answered_with_its_annotation(service, name):
    """A handler that is annotated with a bare class is told at the start which annotation it wants."""
    handler_of(service, BARE[name])
    with pytest.raises(SetupError, match=rf"from pulsar_ext\.faststream\.annotations import {name}\n"):
        start_in_memory(service)


@pytest.mark.parametrize("annotation", [annotations.Client, annotations.PulsarMessage, annotations.PulsarBroker])
def test_annotations_are_taken(service, annotation):
    """Each annotation may stand in a handler."""
    handler_of(service, annotation)
    start_in_memory(service)


def handler_of(service, annotation):
    """Declare a handler with an argument that is annotated so."""

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
def test_which_topics_are_meant(declared, prefix, topic, included):
    """Short and full names are the same; a prefix is in front of each name, and is no pattern in front of a pattern."""
    assert Topics(declared).include(topic, prefix) is included


def test_log_lines_have_whole_ids(service):
    """The id of a chunked message is longer than FastStream's column, and is not cut."""
    service._setup_logger()
    record = logging.makeLogRecord({"message_id": "1234567:10:-1;1234567:19:-1"})
    assert logging.getLogger("faststream.access.pulsar").filter(record)
    assert record.message_id == "1234567:10:-1;1234567:19:-1"
