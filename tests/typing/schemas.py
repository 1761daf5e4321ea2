"""Types of schemas: a schema's type reaches the value, and a value of another type is an error.

An unnecessary ignore is an error: each one below proves that a mistake is found.
"""
# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, assert_type

import pulsar_ext as pulsar
import pulsar_ext.asyncio
from pulsar_ext.schema import AutoConsumeSchema, AvroSchema, JsonSchema, KeyValueSchema, Record, String


@dataclass
class Order:
    """Value of a dataclass."""

    id: int


class Old(Record):
    """Value of the official client's record class."""

    name = String()


def blocking(client: pulsar.Client) -> None:
    """Check the blocking classes."""
    consumer = client.subscribe("t", "s", schema=Order)
    assert_type(consumer.receive(), pulsar.Message[Order])
    assert_type(consumer.receive().value(), Order)
    assert_type(consumer.receive_many(5), list[pulsar.Message[Order]])
    for message in consumer:
        assert_type(message.value().id, int)
    reader = client.create_reader("t", pulsar.MessageId.earliest, schema=JsonSchema(Order))
    assert_type(reader.read_next().value(), Order)
    assert_type(client.create_table_view("t", schema=AvroSchema(Order)).get("k"), Order | None)
    producer = client.create_producer("t", schema=Order)
    producer.send(Order(1))
    producer.send("no order")  # type: ignore[arg-type]
    assert_type(client.subscribe("t", "s").receive(), pulsar.Message[Any])
    assert_type(client.subscribe("t", "s", schema=str).receive().value(), str)
    assert_type(client.subscribe("t", "s", schema=AvroSchema(Old)).receive().value(), Old)
    assert_type(AvroSchema(None, {}).decode(b""), dict[str, Any])
    pairs = client.subscribe("t", "s", schema=KeyValueSchema(str, JsonSchema(Order)))
    assert_type(pairs.receive().value().value, Order)
    assert_type(client.subscribe("t", "s", schema=AutoConsumeSchema()).receive().value(), Any)


async def awaited(client: pulsar_ext.asyncio.Client) -> None:
    """Check the awaited classes."""
    consumer = await client.subscribe("t", "s", schema=Order)
    assert_type(await consumer.receive(), pulsar.Message[Order])
    assert_type((await consumer.receive_many(5))[0].value(), Order)
    reader = await client.create_reader("t", pulsar.MessageId.earliest, schema=Order)
    assert_type((await reader.read_next()).value(), Order)
    producer = await client.create_producer("t", schema=Order)
    await producer.send(Order(1))
    await producer.send(1)  # type: ignore[arg-type]


def unnamed(consumer: pulsar.Consumer, message: pulsar.Message) -> None:
    """Check that the classes need no parameter."""
    assert_type(message.value(), Any)
    assert_type(consumer.receive().value(), Any)
