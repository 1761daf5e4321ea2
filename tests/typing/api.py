"""Types of the public API, and detection of misspelt names; checked by mypy and pyright, never run.

An unnecessary ignore is an error: each one below proves that a mistake is found.
"""
# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

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


async def awaited(client: pulsar.asyncio.Client, consumer: pulsar.asyncio.Consumer[str]) -> None:
    """Check the awaited classes, by the name in the documents."""
    assert_type(pulsar.asyncio.Client, type[pulsar_ext.asyncio.Client])
    assert_type(await client.subscribe("t", "s"), pulsar_ext.asyncio.Consumer[Any])
    assert_type((await consumer.receive()).value(), str)
    assert_type(consumer.subscription_name(), str)
    assert_type(await client.message_id_after("t", 1, 2), pulsar.MessageId | None)
    await client.skip_messages("t", "s", 1, dryrun=True)  # type: ignore[call-arg]
    client.subscirbe("t", "s")  # type: ignore[attr-defined]
    consumer.recieve()  # type: ignore[attr-defined]
