"""`pulsar-ext send`: lines or JSON from a file or the standard input, as messages."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import pulsar
from cyclopts import App
from pulsar.schema import BytesSchema
from rich.console import Console
from rich.progress import Progress, TextColumn

from pulsar_ext.errors import AdminNotFound, InvalidUse
from pulsar_ext.produce.outcome import BulkOutcome
from pulsar_ext.schema.auto_produce import AutoProduceSchema, parse_value

from .arguments import LOCAL, Flag, Json, Reach
from .output import note, print_result

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from io import BufferedReader

    from pulsar_ext import Client
    from pulsar_ext.admin import PulsarAdmin

app = App(name="send", help="Send lines or JSON from a file or the standard input.")

InputFormat = Literal["lines", "json"]
_MEMBERS = frozenset(("value", "key", "properties", "event_time"))
_IGNORED = frozenset(("id", "topic", "publish_time"))
"""Members of a record of `cat` that the broker assigns."""


class Outgoing(NamedTuple):
    """A message to send."""

    value: bytes | None
    key: str | None = None
    properties: dict[str, str] | None = None
    event_time: int | None = None
    """In milliseconds since the epoch."""


@app.default
def send(
    topic: str,
    file: Path | None = None,
    /,
    *,
    input_format: InputFormat = "lines",
    partition_key: str | None = None,
    producer_name: str | None = None,
    chunked: Flag = False,
    reach: Reach = LOCAL,
    as_json: Json = False,
) -> None:
    """Send each line of FILE, or of the standard input, to TOPIC.

    A line is a value. With --input-format json it is an object with "value", "key", "properties" and "event_time", each
    optional but the value, as `cat --format json` writes it. Values are encoded by the topic's schema, which is looked
    up before the first message.

    Args:
        file: The file; by default the standard input.
        input_format: Form of each line.
        partition_key: Key of all messages that have none.
        producer_name: Name for sending effectively once: if the command is started again with the same input, messages
            that the topic has are not stored again. The broker must deduplicate the topic.
        chunked: Send messages above the broker's maximum size in chunks, and none in batches.
    """
    outcome, console = BulkOutcome(), Console(stderr=True)
    shown = Progress("sent", TextColumn("{task.completed:,}"), console=console, disable=not console.is_terminal)
    try:
        with ExitStack() as stack:
            lines = sys.stdin.buffer if file is None else stack.enter_context(_opened(file))
            client, admin = stack.enter_context(reach.connected())
            schema = _schema_of(client, admin, topic)
            producer = stack.enter_context(
                client.create_producer(
                    topic,
                    producer_name,
                    schema,
                    block_if_queue_full=True,
                    deduplication=producer_name is not None,
                    chunking_enabled=chunked,
                    batching_enabled=not chunked,
                    batching_type=pulsar.BatchingType.KeyBased,
                )
            )
            task = stack.enter_context(shown).add_task("")
            for number, message in _messages(lines, schema, input_format):
                producer.send_async(
                    message.value,
                    outcome.one,
                    partition_key=message.key or partition_key,
                    properties=message.properties,
                    event_timestamp=message.event_time,
                    sequence_id=number if producer_name else None,
                )
                shown.update(task, completed=outcome.done)
                outcome.raise_failure()
            producer.flush()
            outcome.raise_failure()
    except BaseException:
        note(f"{_sent(outcome):,} messages were sent, and none after them")
        raise
    if as_json:
        print_result({"sent": _sent(outcome), "already_sent": outcome.duplicates})
    else:
        print_result(f"sent: {_sent(outcome):,}; sent before: {outcome.duplicates:,}")


def _sent(outcome: BulkOutcome) -> int:
    return outcome.done - outcome.failed - outcome.duplicates


def _messages(
    lines: Iterable[bytes], schema: AutoProduceSchema, input_format: InputFormat
) -> Iterator[tuple[int, Outgoing]]:
    """Yield the number and the message of each line; raise `InvalidUse` at an invalid one."""
    for number, line in enumerate(lines):
        try:
            yield number, outgoing(line, schema, input_format)
        except ValueError as error:
            raise InvalidUse(f"line {number + 1}: {error}. It was not sent, and neither were later ones.") from None


def outgoing(line: bytes, schema: AutoProduceSchema, input_format: InputFormat) -> Outgoing:
    """Return the message of a line (pure); raise `ValueError` if it is invalid."""
    line = line.removesuffix(b"\n")
    if input_format == "lines":
        return Outgoing(schema.write_line(line))
    record = parse_value(line.decode())
    if not isinstance(record, dict) or "value" not in record:
        raise InvalidUse(f'it must be an object with a "value", got {line[:60]!r}')
    if unknown := record.keys() - _MEMBERS - _IGNORED:
        raise InvalidUse(f"it has unknown members: {', '.join(sorted(unknown))}")
    key, properties, event_time = record.get("key"), record.get("properties") or {}, record.get("event_time")
    if not isinstance(key, str | None):
        raise InvalidUse(f"its key must be text, got {key!r}")
    if not isinstance(properties, dict) or not all(isinstance(one, str) for one in properties.values()):
        raise InvalidUse(f"its properties must be an object of texts, got {properties!r}")
    return Outgoing(schema.write(record["value"]), key, properties or None, _millis(event_time))


def _millis(time: object) -> int | None:
    if isinstance(time, str):
        return round(datetime.fromisoformat(time).astimezone().timestamp() * 1000)
    if time is None or (isinstance(time, int) and not isinstance(time, bool) and time >= 0):
        return time or None
    raise InvalidUse(f"its event_time must be a time (2026-11-30T10:00) or milliseconds since the epoch, got {time!r}")


def _opened(file: Path) -> BufferedReader:
    try:
        return file.open("rb")
    except OSError as error:
        raise InvalidUse(f"{file} cannot be read: {error}") from None


def _schema_of(client: Client, admin: PulsarAdmin, topic: str) -> AutoProduceSchema:
    """Return the latest schema of a topic, or that of bytes if it has none."""
    try:
        version = admin.schema(topic).version
    except AdminNotFound:
        return AutoProduceSchema(BytesSchema().schema_info(), "no schema")
    return AutoProduceSchema(client.context.schema_info(topic, version), f"the schema of {topic}")
