"""Types of the public API, and detection of misspelt names and wrong arguments; checked by mypy and pyright, never run.

An unnecessary ignore is an error: each one below proves that a mistake is found.
"""
# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

import re
from typing import Any, assert_type

import pulsar_ext as pulsar
import pulsar_ext.asyncio


def blocking(client: pulsar.Client, consumer: pulsar.Consumer[str], reader: pulsar.Reader[bytes]) -> None:
    """Check the blocking classes."""
    assert_type(client.subscribe("t", "s"), pulsar.Consumer[Any])
    assert_type(consumer.topic(), str)
    message = consumer.receive()
    assert_type(message.value(), str)
    assert_type(message.data(), bytes)
    assert_type(message.properties(), dict[str, str])
    assert_type(message.message_id().ledger_id(), int)
    assert_type(reader.read_next().partition_key(), str)
    assert_type(client.create_producer("t").last_sequence_id(), int)
    client.subscirbe("t", "s")  # type: ignore[attr-defined]
    consumer.recieve()  # type: ignore[attr-defined]
    reader.red_next()  # type: ignore[attr-defined]
    client.create_producer("t").sned(b"")  # type: ignore[attr-defined]
    message.dta()  # type: ignore[attr-defined]
    pulsar.MessageId().ledgerid()  # type: ignore[attr-defined]
    assert_type(pulsar.NoSuchTopic, type[pulsar.errors.NoSuchTopic])


def arguments(client: pulsar.Client, consumer: pulsar.Consumer) -> None:
    """Check the arguments of the blocking methods."""
    pulsar.Client("pulsar://b:6650", None, 30, tls_validate_hostname=True, admin="http://b:8080")
    pulsar.Client("pulsar://b:6650", operation_timeout=30)  # type: ignore[call-arg]
    pulsar.Client("pulsar://b:6650", operation_timeout_seconds="30")  # type: ignore[arg-type]
    client.subscribe(re.compile("t.*"), "s", pulsar.ConsumerType.Shared, str, lambda _, one: one.value().upper())
    client.subscribe("t")  # type: ignore[call-arg]
    client.subscribe("t", "s", "Shared")  # type: ignore[arg-type]
    client.subscribe("t", "s", reciever_queue_size=1)  # type: ignore[call-arg]
    client.subscribe("t", "s", receiver_queue_size="1")  # type: ignore[arg-type]
    client.subscribe("t", "s", enable_retry=True, ack_group_time=1)  # type: ignore[call-arg]
    client.create_producer("t", "name", bytes, batching_enabled=True, deduplication=True)
    client.create_producer("t", batching_enabld=True)  # type: ignore[call-arg]
    client.create_producer("t", compression_type="LZ4")  # type: ignore[arg-type]
    client.create_reader(["t"], {"t": pulsar.MessageId.earliest}, key_hash_ranges=["0-100"])
    client.create_reader("t")  # type: ignore[call-arg]
    client.create_reader("t", "earliest")  # type: ignore[arg-type]
    client.create_reader("t", pulsar.MessageId.earliest, key_forms="exactly")  # type: ignore[arg-type]
    client.create_table_view("t", subscription="s")  # type: ignore[call-arg]
    client.new_consumer().subscription_type("Shared")  # type: ignore[arg-type]
    client.new_reader().start_message_id("earliest")  # type: ignore[arg-type]
    consumer.seek({"t": 1})
    consumer.seek("earliest")  # type: ignore[arg-type]


async def awaited(client: pulsar.asyncio.Client, consumer: pulsar.asyncio.Consumer[str]) -> None:
    """Check the awaited classes, by the name in the documents."""
    assert_type(pulsar.asyncio.Client, type[pulsar_ext.asyncio.Client])
    assert_type(await client.subscribe("t", "s"), pulsar_ext.asyncio.Consumer[Any])
    assert_type((await consumer.receive()).value(), str)
    assert_type(consumer.subscription_name(), str)
    assert_type(await client.message_id_after("t", pulsar.MessageId.earliest, 2), pulsar.MessageId | None)
    await client.skip_messages("t", "s", 1, dryrun=True)  # type: ignore[call-arg]
    client.subscirbe("t", "s")  # type: ignore[attr-defined]
    consumer.recieve()  # type: ignore[attr-defined]


async def awaited_arguments(client: pulsar.asyncio.Client) -> None:
    """Check the arguments of the awaited methods."""
    pulsar.asyncio.Client("pulsar://b:6650", None, 30)
    pulsar.asyncio.Client("pulsar://b:6650", operation_timeout=30)  # type: ignore[call-arg]
    await client.subscribe("t", "s", pulsar.ConsumerType.Shared, is_pattern_topic=True, ack_group_time_ms=1)
    await client.subscribe("t", "s", reciever_queue_size=1)  # type: ignore[call-arg]
    await client.create_producer("t", batching_enabled="yes")  # type: ignore[arg-type]
    await client.create_reader("t", "earliest")  # type: ignore[arg-type]
    assert_type(await client.create_table_view("t", schema=str), pulsar.asyncio.TableView[str])
    await client.create_table_view("t", subscription="s")  # type: ignore[call-arg]
    await client.create_reader_group("t", pulsar.MessageId.earliest)  # type: ignore[call-arg]
