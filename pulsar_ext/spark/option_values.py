"""The parsers of the values of options (pure): each raises ValueError or TypeError with what is allowed."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from pulsar_ext.ids.topic_name import TopicName
from pulsar_ext.key_shared.hash_ranges import KeyHashRange, KeyHashRanges
from pulsar_ext.key_shared.hashing import key_slot

from .offsets import Offset

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "a_choice",
    "a_duration",
    "a_flag",
    "a_moment",
    "a_number",
    "a_pattern",
    "a_text",
    "a_topic",
    "a_url",
    "an_avro_schema",
    "an_offset",
    "by_topic",
    "some_keys",
    "some_names",
    "some_ranges",
    "some_topics",
]


def a_text(value: str) -> str:
    """Read text that is not empty."""
    if not value.strip():
        raise ValueError("it is empty")
    return value.strip()


def a_url(*schemes: str) -> Callable[[str], str]:
    """Make the parser of a URL."""

    def parse(value: str) -> str:
        text = a_text(value)
        if not re.fullmatch(rf"(?:{'|'.join(map(re.escape, schemes))})://[^\s/]+/?.*", text):
            raise ValueError(f"allowed: a URL that begins with {' or '.join(f'{scheme}://' for scheme in schemes)}")
        return text

    parse.__doc__ = "URL"
    return parse


def a_topic(value: str) -> str:
    """Read a topic name."""
    text = a_text(value)
    TopicName.parse(text)
    return text


def some_topics(value: str) -> tuple[str, ...]:
    """Read topic names, separated by commas."""
    return tuple(map(a_topic, some_names(value)))


def an_avro_schema(value: str) -> str:
    """Check an Avro schema in JSON, and give it unchanged."""
    try:
        found = json.loads(value)
    except ValueError as error:
        raise ValueError(f"allowed: an Avro schema in JSON ({error})") from None
    if not isinstance(found, dict):
        raise TypeError("allowed: an Avro schema in JSON, which is an object with type and fields")
    return value


def a_flag(value: str) -> bool:
    """Read true or false."""
    try:
        return {"true": True, "false": False}[value.strip().lower()]
    except KeyError:
        raise ValueError("allowed: true, false") from None


def a_choice(*allowed: str) -> Callable[[str], str]:
    """Make the parser of one of several words."""

    def parse(value: str) -> str:
        known = {one.lower(): one for one in allowed}
        if value.strip().lower() not in known:
            raise ValueError(f"allowed: {', '.join(allowed)}")
        return known[value.strip().lower()]

    parse.__doc__ = " \\| ".join(allowed)
    return parse


def a_number(least: int, most: int = 2**63 - 1) -> Callable[[str], int]:
    """Make the parser of a whole number within limits."""

    def parse(value: str) -> int:
        if not re.fullmatch(r"\d{1,19}", value.strip(), re.ASCII) or not least <= int(value) <= most:
            raise ValueError(f"allowed: a whole number from {least}" + (f" to {most}" if most < 2**63 - 1 else ""))
        return int(value)

    parse.__doc__ = f"a number, {least} or more"
    return parse


_UNITS: Final = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000}


def a_duration(value: str) -> int:
    """Read a duration such as `90s`, `15m` or `500ms`; give milliseconds."""
    match = re.fullmatch(r"(\d{1,12})\s*(ms|s|m|min|h)?", value.strip().lower(), re.ASCII)
    if match is None:
        raise ValueError("allowed: a duration such as 500ms, 90s, 15m or 1h; a bare number is milliseconds")
    return int(match[1]) * _UNITS[match[2] or "ms"]


def some_names(value: str) -> tuple[str, ...]:
    """Read names, separated by commas."""
    names = tuple(dict.fromkeys(name.strip() for name in value.split(",") if name.strip()))
    if not names:
        raise ValueError("allowed: names separated by commas")
    return names


def a_pattern(value: str) -> str:
    """Read a regular expression."""
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"allowed: a regular expression of topic names ({error})") from None
    return a_text(value)


def by_topic(one: Callable[[Any], Any], what: str) -> Callable[[str], Any]:
    """Make the parser of one value for all topics, or a JSON object of values by topic; an offset may be one, too."""

    def parse(value: str) -> Any:
        text = value.strip()
        if not text.startswith("{"):
            return one(a_text(value))
        try:
            found = json.loads(text)
        except ValueError as error:
            raise ValueError(f"allowed: {what}, or a JSON object of them by topic ({error})") from None
        if not found:
            raise ValueError("the JSON object is empty")
        if one is an_offset and isinstance(found.get("ledger"), int):
            return one(found)
        return MappingProxyType({topic: one(item) for topic, item in found.items()})

    parse.__doc__ = f"{what}, or JSON `{{topic: …}}`"
    return parse


def a_moment(value: Any) -> int:
    """Read a time in milliseconds since the epoch or in ISO 8601 (without an offset, UTC); give milliseconds."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    text = str(value).strip()
    if re.fullmatch(r"\d{1,15}", text, re.ASCII):
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("allowed: milliseconds since the epoch, or a time such as 2026-01-31T12:00:00Z") from None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def an_offset(value: Any) -> Any:
    """Read earliest, latest or a message id."""
    if isinstance(value, str) and value.strip().lower() in ("earliest", "latest"):
        return value.strip().lower()
    return Offset.of_message(value)


def some_ranges(value: str) -> KeyHashRanges:
    """Read ranges of key slots."""
    return KeyHashRanges.parse(value)


def some_keys(value: str) -> KeyHashRanges:
    """Read keys, as a JSON list or separated by commas; give their slots."""
    keys = json.loads(value) if value.strip().startswith("[") else some_names(value)
    if not keys or not all(isinstance(key, str) for key in keys):
        raise ValueError("allowed: keys separated by commas, or a JSON list of strings")
    slots = sorted({key_slot(key) for key in keys})
    return KeyHashRanges(KeyHashRange(slot, slot) for slot in slots)
