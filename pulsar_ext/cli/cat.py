"""`pulsar-ext cat`: print messages of topics, from one place to another."""

from __future__ import annotations

import base64
import json
import re
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter
from pulsar import PulsarException
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pulsar_ext.errors import InvalidMessageId, InvalidUse
from pulsar_ext.ids.message_id import MessageId
from pulsar_ext.schema.auto_consume import AutoConsumeSchema
from pulsar_ext.schema.auto_produce import number_of

from .arguments import LOCAL, Flag, Reach, read_id, read_pairs

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pulsar_ext.message import Message
    from pulsar_ext.reading import Place, Places

app = App(name="cat", help="Print messages of topics, from one place to another.")

_FOLLOW_SECONDS = 0.5
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_AGO = re.compile(r"(\d+)([smhd])")
_ROWS = 200
"""Number of messages of one table."""


@app.default
def cat(
    topic: str,
    /,
    *,
    from_: Annotated[str | None, Parameter(name="--from")] = None,
    to: str | None = None,
    last: int | None = None,
    key: Annotated[list[str] | None, Parameter(negative="")] = None,
    property_: Annotated[list[str] | None, Parameter(name="--property", negative="")] = None,
    where: str | None = None,
    schema: Literal["auto", "raw"] = "auto",
    output: Annotated[Literal["table", "json", "raw", "hex"] | None, Parameter(name="--format")] = None,
    as_json: Annotated[bool, Parameter(name="--json", negative="", help="Same as --format json.")] = False,
    by_time: Flag = False,
    follow: Flag = False,
    reach: Reach = LOCAL,
) -> None:
    """Print the messages of TOPIC, without a subscription: a table on a terminal, else a line of JSON for each.

    A place is a message id (5:7:-1), a publish time (2026-11-30T10:00, or milliseconds since the epoch), or an age
    (15m, 2h, 7d). A time without a zone is local.

    Args:
        topic: The topic, partitioned or not.
        from_: The first message; by default the first one that is stored.
        to: The last message; by default the last one that is stored.
        last: Only the last messages of each partition, instead of --from.
        key: Only messages with this key; may be repeated.
        property_: Only messages with this property, NAME=VALUE; may be repeated.
        where: Only messages whose printed value this regular expression matches.
        schema: auto decodes values by the topic's schema; raw prints their bytes.
        output: Form of each message: a row of a table, a line of JSON, or its payload, as it is or in hexadecimal.
        by_time: Merge partitions by publish time, instead of one after the other.
        follow: Continue with new messages until Ctrl-C.
    """
    if follow and to is not None:
        raise InvalidUse("--follow has no end; omit --to")
    form = "json" if as_json else output or ("table" if sys.stdout.isatty() else "json")
    properties, pattern = read_pairs("--property", property_ or ()), pattern_of(where)
    places: Places = None if from_ is None else parse_place(from_)
    with reach.connected() as (client, _):
        inclusive = True
        while True:
            reading = client.read(
                topic,
                places,
                None if to is None else parse_place(to),
                last=last,
                start_inclusive=inclusive,
                by_publish_time=by_time,
                keys=key,
                properties=properties,
                schema=None if schema == "raw" else AutoConsumeSchema(),
            )
            with reading:
                matching = (one for one in reading if where is None or pattern.search(text_of(one)))
                if form == "table":
                    _print_table(matching)
                for message in matching:
                    if form == "raw":
                        sys.stdout.buffer.write(message.data() + b"\n")
                    else:
                        print(message.data().hex(" ") if form == "hex" else json_of(message))  # noqa: T201  # the result
            if not follow:
                return
            sys.stdout.flush()
            places, inclusive, last = reading.stored, False, None
            time.sleep(_FOLLOW_SECONDS)


def parse_place(text: str) -> Place:
    """Return the place that a text means (pure but for ages)."""
    if ago := _AGO.fullmatch(text):
        return datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
    if text.isdecimal():
        return int(text)
    if text in ("earliest", "latest"):
        return MessageId.earliest if text == "earliest" else MessageId.latest
    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError:
        pass
    try:
        return read_id((text,))
    except InvalidMessageId:
        raise InvalidUse(
            f"{text!r} is not a place; pass a message id (5:7:-1), a time (2026-11-30T10:00, or ms), or an age "
            "(15m, 2h, 7d)"
        ) from None


def pattern_of(where: str | None) -> re.Pattern[str]:
    """Return the regular expression of `--where`; without one it matches all."""
    try:
        return re.compile(where or "")
    except re.error as error:
        raise InvalidUse(f"--where {where!r} is not a regular expression: {error}") from None


def plain(value: object) -> object:
    """Return what JSON writes for a value that it does not have."""
    if isinstance(value, bytes | bytearray):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, Decimal):
        return number_of(value)
    if isinstance(value, Mapping):
        return dict(value)
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def value_of(message: Message) -> object:
    """Return the value of a message, or the error of its decoding."""
    try:
        return message.value()
    except (PulsarException, ValueError) as error:
        return {"error": str(error)}


def text_of(message: Message) -> str:
    """Return the value of a message on one line."""
    value = value_of(message)
    if isinstance(value, bytes):
        value = plain(value)
    return value if isinstance(value, str) else json.dumps(value, default=plain, ensure_ascii=False)


def record_of(message: Message) -> dict[str, object]:
    """Return a message as a record of its id, topic, key, times, properties and value."""
    event = message.event_timestamp()
    return {
        "id": message.message_id().to_text(),
        "topic": message.topic_name(),
        "key": message.partition_key() or None,
        "publish_time": _time(message.publish_timestamp()),
        "event_time": _time(event) if event else None,
        "properties": message.properties(),
        "value": value_of(message),
    }


def _time(millis: int) -> str:
    return datetime.fromtimestamp(millis / 1000, UTC).isoformat(timespec="milliseconds")


def json_of(message: Message) -> str:
    """Return a message as a line of JSON."""
    return json.dumps(record_of(message), default=plain, ensure_ascii=False)


def _print_table(messages: Iterable[Message]) -> None:
    remaining, console = iter(messages), Console(highlight=False)
    while rows := list(islice(remaining, _ROWS)):
        table = Table("published", "id", "key", "value", box=None, padding=(0, 2, 0, 0), header_style="dim")
        for one in rows:
            published = datetime.fromtimestamp(one.publish_timestamp() / 1000).astimezone()
            cells = (f"{published:%m-%d %H:%M:%S}", one.message_id().to_text(), one.partition_key(), text_of(one))
            table.add_row(*map(Text, cells))
        console.print(table)
