"""Dataclasses and pydantic models as schemas: sent, received, evolved and rejected."""

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
    """An order status."""

    OPEN = "o"
    PAID = "p"


@dataclass
class Card:
    """A payment."""

    number: str


@dataclass
class Transfer:
    """Another payment."""

    iban: str
    due: dt.date | None = None


@dataclass
class Item:
    """An order item."""

    sku: str
    price: Annotated[decimal.Decimal, decimal_type(10, 2)]
    count: Int32 = 1


@dataclass
class Order:
    """A model with every supported type."""

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
    """A pydantic model with constraints and an alias."""

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
def test_model_values_are_received_as_sent(client, topic, make, value, batched):
    """Consumers, readers and table views return the model's values, for every schema and way of sending."""
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
def test_messages_are_read_by_their_schema_version(client, topic, admin):
    """The latest model reads messages of three versions, with reordered, widened, dropped and new fields."""
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


def test_incompatible_reader_raises(client, topic):
    """The error names each difference, and no subscription is created."""
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


def test_rejected_producer_raises_with_differences(client, topic):
    """The broker's error has the differences in both directions."""
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
        ({"payment": None}, r"Order.payment is NoneType None, not one of Card, Transfer"),
    ],
)
@pytest.mark.parametrize("kind", [AvroSchema, JsonSchema])
def test_invalid_value_is_not_sent(client, topic, kind, change, why):
    """The error states the path of the value, and later messages are sent."""
    producer = client.create_producer(topic, schema=kind(Order))
    with pytest.raises(pulsar.InvalidUse, match=why):
        producer.send(dataclasses.replace(ORDER, **change))
    producer.send(ORDER)
    reader = client.create_reader(topic, pulsar.MessageId.earliest, schema=kind(Order))
    assert reader.read_next(10_000).value() == ORDER
    assert not reader.has_message_available()


def test_payload_without_schema_raises(client, topic):
    """A message sent without a schema raises, and `data()` returns its bytes."""
    client.create_producer(topic).send(b"\xff\xff")
    client.create_producer(topic, schema=JsonSchema(Card)).send(Card("1"))
    reader = client.create_reader(topic, pulsar.MessageId.earliest, schema=JsonSchema(Card))
    message = reader.read_next(10_000)
    with pytest.raises(pulsar.SchemaMismatch):
        message.value()
    assert message.data() == b"\xff\xff"
    assert reader.read_next(10_000).value() == Card("1")


def test_schema_object_serves_several_clients(client_factory, broker, client, topic, pulsar_topic_factory):
    """Schema versions known to one client are not used by another."""
    schema = AvroSchema(FIRST)
    values = []
    for each_client in (client, client_factory(broker)):
        producer = each_client.create_producer(topic, schema=schema)
        producer.send(FIRST(station="x", celsius=1))
        values.append(each_client.create_reader(topic, pulsar.MessageId.earliest, schema=schema).read_next(10_000))
    assert eventually(lambda: all(message.value() == FIRST(station="x", celsius=1) for message in values))
