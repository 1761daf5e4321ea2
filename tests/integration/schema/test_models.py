"""Dataclasses and pydantic models as schemas: sent and received, evolved, refused where they do not go together."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import uuid
from dataclasses import dataclass, field
from typing import Annotated

import pydantic
import pytest
from chunked import eventually

import pulsar_ext as pulsar
from pulsar_ext.schema import AvroSchema, Int32, JsonSchema, decimal_type

BOTH_CLIENTS = True

EARLIEST = {"initial_position": pulsar.InitialPosition.Earliest}


class Status(enum.Enum):
    """A state."""

    OPEN = "o"
    PAID = "p"


@dataclass
class Card:
    """A way to pay."""

    number: str


@dataclass
class Transfer:
    """Another one."""

    iban: str
    due: dt.date | None = None


@dataclass
class Item:
    """What is bought."""

    sku: str
    price: Annotated[decimal.Decimal, decimal_type(10, 2)]
    count: Int32 = 1


@dataclass
class Order:
    """Everything that a schema can have."""

    id: uuid.UUID
    placed: dt.datetime
    status: Status
    items: list[Item]
    payment: Card | Transfer
    total: decimal.Decimal
    note: str | None = None
    weights: dict[str, float] = field(default_factory=dict)
    picture: bytes = b""


class Person(pydantic.BaseModel):
    """A pydantic model with constraints, and another name on the wire."""

    name: str = pydantic.Field(min_length=1)
    birth_day: dt.date = pydantic.Field(alias="birthDay")
    emails: set[str] = set()
    likes: Item | None = None


ORDER = Order(
    uuid.uuid4(),
    dt.datetime.now(dt.UTC),
    Status.PAID,
    [Item("a", decimal.Decimal("1.25")), Item("b", decimal.Decimal(3), 2)],
    Transfer("DE00", dt.date(2030, 1, 2)),
    decimal.Decimal("7.2500000001"),
    weights={"a": 0.5},
    picture=bytes(range(256)),
)
PERSON = Person(name="Ada", birthDay=dt.date(1815, 12, 10), emails={"a@b.c"}, likes=ORDER.items[0])


@pytest.mark.core
@pytest.mark.parametrize("value", [ORDER, PERSON], ids=["dataclass", "pydantic"])
@pytest.mark.parametrize("make", [lambda model: model, AvroSchema, JsonSchema], ids=["class", "avro", "json"])
@pytest.mark.parametrize("batched", [False, True])
def test_values_are_received_as_they_were_sent(client, topic, make, value, batched):
    """A consumer, a reader and a table view give the model's values, whichever schema and however it was sent."""
    schema = make(type(value))
    producer = client.create_producer(
        topic, schema=schema, batching_enabled=batched, batching_type=pulsar.BatchingType.KeyBased
    )
    producer.send(value, partition_key="k")
    consumer = client.subscribe(topic, "s", schema=schema, **EARLIEST)
    message = consumer.receive(10_000)
    assert message.value() == value
    assert type(message.value()) is type(value)
    consumer.acknowledge(message)
    assert client.create_reader(topic, pulsar.MessageId.earliest, schema=schema).read_next(10_000).value() == value
    assert client.create_table_view(topic, schema=schema).get("k") == value


def _version(*fields):
    return dataclasses.make_dataclass("Reading", fields, kw_only=True)


FIRST = _version(("station", str), ("celsius", Int32))
SECOND = _version(("celsius", float), ("station", str), ("unit", str, "C"))
THIRD = _version(("unit", str, "K"), ("celsius", float | None), ("at", dt.datetime | None, None))


@pytest.mark.core
def test_each_message_is_read_by_the_version_that_wrote_it(client, topic, admin):
    """Three versions on one topic, with fields in other orders, wider, dropped and new: each reads all."""
    admin.set_schema_compatibility_strategy("/".join(topic.split("/")[-3:-1]), "BACKWARD")
    at = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
    client.create_producer(topic, schema=FIRST).send(FIRST(station="x", celsius=1))
    client.create_producer(topic, schema=SECOND).send(SECOND(station="y", celsius=2.5, unit="F"))
    client.create_producer(topic, schema=THIRD).send(THIRD(celsius=None, at=at))
    reader = client.create_reader(topic, pulsar.MessageId.earliest, schema=THIRD)
    assert [reader.read_next(10_000).value() for _ in range(3)] == [
        THIRD(unit="K", celsius=1.0),
        THIRD(unit="F", celsius=2.5),
        THIRD(celsius=None, at=at),
    ]


def test_a_reader_that_cannot_read_the_topic_is_refused(client, topic):
    """The error names each difference, before anything is opened: there is no subscription."""
    client.create_producer(topic, schema=FIRST).send(FIRST(station="x", celsius=1))
    other = _version(("station", int), ("celsius", float), ("place", str))
    with pytest.raises(pulsar.SchemaMismatch) as caught:
        client.subscribe(topic, "s", schema=other)
    assert caught.value.differences == (
        "Reading.station: string is written, long is read",
        "Reading.place: is not written, and has no default: string is read",
    )
    assert isinstance(caught.value, pulsar.IncompatibleSchema)
    assert "s" not in client.context.admin_api().stats(topic).subscriptions


def test_a_producer_that_the_broker_refuses_hears_the_difference(client, topic):
    """The broker's decision, by its strategy, comes with what it was about, in both directions."""
    client.create_producer(topic, schema=FIRST)
    with pytest.raises(pulsar.SchemaMismatch, match=r"FULL.*for the topic's readers: Reading.celsius") as caught:
        client.create_producer(topic, schema=_version(("station", str), ("celsius", str)))
    assert len(caught.value.differences) == 2
    with pytest.raises(pulsar.SchemaMismatch, match="the topic has a schema of type AVRO, this one is JSON"):
        client.create_producer(topic, schema=JsonSchema(FIRST))


@pytest.mark.core
@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"placed": dt.datetime(2030, 1, 1)}, r"Order.placed is 2030.*time zone"),  # noqa: DTZ001  # the point of it
        ({"items": [Item("a", decimal.Decimal("1.255"))]}, r"Order.items\[0\].price is 1.255, which does not fit"),
        ({"items": [Item("a", decimal.Decimal(1), 2**31)]}, r"Order.items\[0\].count is 2147483648, beyond"),
        ({"payment": None}, r"Order.payment is NoneType None, which is none of Card, Transfer"),
    ],
)
@pytest.mark.parametrize("kind", [AvroSchema, JsonSchema])
def test_a_value_that_does_not_fit_is_not_sent(client, topic, kind, change, why):
    """The error says where in the value it is; what is sent afterwards arrives."""
    producer = client.create_producer(topic, schema=kind(Order))
    with pytest.raises(pulsar.InvalidUse, match=why):
        producer.send(dataclasses.replace(ORDER, **change))
    producer.send(ORDER)
    reader = client.create_reader(topic, pulsar.MessageId.earliest, schema=kind(Order))
    assert reader.read_next(10_000).value() == ORDER
    assert not reader.has_message_available()


def test_bytes_that_are_no_such_value_raise(client, topic):
    """A message that was sent without a schema is not taken for one: its value raises, its bytes are there."""
    client.create_producer(topic).send(b"\xff\xff")
    client.create_producer(topic, schema=JsonSchema(Card)).send(Card("1"))
    reader = client.create_reader(topic, pulsar.MessageId.earliest, schema=JsonSchema(Card))
    message = reader.read_next(10_000)
    with pytest.raises(pulsar.SchemaMismatch):
        message.value()
    assert message.data() == b"\xff\xff"
    assert reader.read_next(10_000).value() == Card("1")


def test_a_schema_object_serves_several_clients(client_factory, broker, client, topic, pulsar_topic_factory):
    """What one client has learnt of a topic's versions is not another one's."""
    schema = AvroSchema(FIRST)
    values = []
    for one in (client, client_factory(broker)):
        producer = one.create_producer(topic, schema=schema)
        producer.send(FIRST(station="x", celsius=1))
        values.append(one.create_reader(topic, pulsar.MessageId.earliest, schema=schema).read_next(10_000))
    assert eventually(lambda: all(one.value() == FIRST(station="x", celsius=1) for one in values))
