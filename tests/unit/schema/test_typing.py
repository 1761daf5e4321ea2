"""What type checkers see: the type of a schema's values, from the client to the value."""

from __future__ import annotations

import re

from mypy import api

PROGRAM = """
from dataclasses import dataclass
from typing import Any

import pulsar_ext as pulsar
import pulsar_ext.asyncio
from pulsar_ext.schema import AutoConsumeSchema, AvroSchema, JsonSchema, KeyValueSchema, Record, String


@dataclass
class Order:
    id: int


class Old(Record):
    name = String()


def blocking(client: pulsar.Client) -> None:
    consumer = client.subscribe("t", "s", schema=Order)
    reveal_type(consumer.receive())  # Message[Order]
    reveal_type(consumer.receive().value())  # Order
    reveal_type(consumer.receive_many(5))  # list[Message[Order]]
    for message in consumer:
        reveal_type(message.value().id)  # int
    reader = client.create_reader("t", pulsar.MessageId.earliest, schema=JsonSchema(Order))
    reveal_type(reader.read_next().value())  # Order
    reveal_type(client.create_table_view("t", schema=AvroSchema(Order)).get("k"))  # Order | None
    producer = client.create_producer("t", schema=Order)
    producer.send(Order(1))
    producer.send("no order")  # error
    reveal_type(client.subscribe("t", "s").receive())  # Message[Any]
    reveal_type(client.subscribe("t", "s", schema=str).receive().value())  # str
    reveal_type(client.subscribe("t", "s", schema=AvroSchema(Old)).receive().value())  # Old
    reveal_type(AvroSchema(None, {}).decode(b""))  # dict[str, Any]
    pairs = client.subscribe("t", "s", schema=KeyValueSchema(str, JsonSchema(Order)))
    reveal_type(pairs.receive().value().value)  # Order
    reveal_type(client.subscribe("t", "s", schema=AutoConsumeSchema()).receive().value())  # Any


async def awaited(client: pulsar_ext.asyncio.Client) -> None:
    consumer = await client.subscribe("t", "s", schema=Order)
    reveal_type(await consumer.receive())  # Message[Order]
    reveal_type((await consumer.receive_many(5))[0].value())  # Order
    reader = await client.create_reader("t", pulsar.MessageId.earliest, schema=Order)
    reveal_type((await reader.read_next()).value())  # Order
    producer = await client.create_producer("t", schema=Order)
    await producer.send(Order(1))
    await producer.send(1)  # error


def unnamed(consumer: pulsar.Consumer, message: pulsar.Message) -> Any:
    reveal_type(message.value())  # Any
    return consumer.receive().value()
"""


def test_the_type_of_a_schema_reaches_the_value(tmp_path):
    """`mypy --strict` infers what each comment says, and finds the sends of another type, and nothing else."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    out, errors, _ = api.run(["--strict", "--no-incremental", "--no-pretty", str(program)])
    assert not errors
    found = {}
    for number, said in re.findall(r"program\.py:(\d+): (note: Revealed type is .*|error: .*)", out):
        revealed = re.fullmatch(r'note: Revealed type is "(.*)"', said)
        found[int(number)] = re.sub(r"[\w.]+\.(?=\w)", "", revealed[1]) if revealed else "error"
    wanted = {
        number: line.partition("  # ")[2] for number, line in enumerate(PROGRAM.splitlines(), 1) if "  # " in line
    }
    assert found == wanted, out
