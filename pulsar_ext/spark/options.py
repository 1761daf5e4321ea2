"""Table of the options of `format("pulsar")`, and the functions that parse and check them (pure).

Spark passes every option as text, with its key in lower case. An option that is unknown, conflicts with another one or
cannot be parsed raises when the data source is created, before any connection is made. The error lists the allowed
values.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from pulsar_ext.errors import InvalidUse
from pulsar_ext.ids.topic_name import TopicName
from pulsar_ext.key_shared.hash_ranges import KeyHashRange, KeyHashRanges
from pulsar_ext.key_shared.hashing import key_slot

from .offsets import Offset

T = TypeVar("T")


def parser(allowed: str, convert: Callable[[str], T | None]) -> Callable[[str], T]:
    """Return a parser of an option's text, whose error says what is allowed, if `convert` returns None or raises."""

    def parse(value: str) -> T:
        why = ""
        try:
            if (found := convert(value.strip())) is not None:
                return found
        except (ValueError, re.error) as error:
            why = f" ({error})"
        raise ValueError(f"allowed: {allowed}{why}")

    return parse


def _url_parser(*schemes: str) -> Callable[[str], str]:
    begins = " or ".join(f"{scheme}://" for scheme in schemes)
    url = re.compile(rf"(?:{'|'.join(map(re.escape, schemes))})://[^\s/]+/?.*")
    return parser(f"a URL that begins with {begins}", lambda text: text if url.fullmatch(text) else None)


def _choice_parser(*allowed: str) -> Callable[[str], str]:
    known = {one.lower(): one for one in allowed}
    return parser(", ".join(allowed), lambda text: known.get(text.lower()))


def _number_parser(least: int, most: int = 2**63 - 1) -> Callable[[str], int]:
    def convert(text: str) -> int | None:
        return int(text) if re.fullmatch(r"\d{1,19}", text, re.ASCII) and least <= int(text) <= most else None

    return parser(f"a whole number from {least}" + (f" to {most}" if most < 2**63 - 1 else ""), convert)


_UNITS: Final = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000}


def _milliseconds(text: str) -> int | None:
    match = re.fullmatch(r"(\d{1,12})\s*(ms|s|m|min|h)?", text.lower(), re.ASCII)
    return match and int(match[1]) * _UNITS[match[2] or "ms"]


parse_text = parser("a text that is not empty", lambda text: text or None)
parse_topic = parser("a topic", lambda text: text if TopicName.parse(text) else None)
parse_avro_schema = parser(
    "an Avro schema in JSON, which is an object with type and fields",
    lambda text: text if isinstance(json.loads(text), dict) else None,
)
parse_flag = parser("true, false", lambda text: {"true": True, "false": False}.get(text.lower()))
parse_duration = parser("a duration such as 500ms, 90s, 15m or 1h; a bare number is milliseconds", _milliseconds)
parse_names = parser(
    "names separated by commas",
    lambda text: tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip())) or None,
)
parse_pattern = parser("a regular expression of topic names", lambda text: text if text and re.compile(text) else None)


def _by_topic_parser(one: Callable[[object], T], what: str) -> Callable[[str], T | dict[str, T]]:
    """Return a parser of one value for all topics, or of a JSON object by topic; an offset may be an object too."""

    def parse(value: str) -> T | dict[str, T]:
        text = value.strip()
        if not text.startswith("{"):
            return one(parse_text(value))
        try:
            found = json.loads(text)
        except ValueError as error:
            raise ValueError(f"allowed: {what}, or a JSON object of them by topic ({error})") from None
        if not found:
            raise ValueError("the JSON object is empty")
        if one is _parse_offset and isinstance(found.get("ledger"), int):
            return one(found)
        return {topic: one(item) for topic, item in found.items()}

    return parse


def _parse_time(value: object) -> int:
    """Parse a time in milliseconds since the epoch or in ISO 8601 (UTC without an offset); return milliseconds."""
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


def _parse_offset(value: object) -> str | Offset:
    if isinstance(value, str) and value.strip().lower() in ("earliest", "latest"):
        return value.strip().lower()
    return Offset.of_message(value)


def _parse_keys(value: str) -> KeyHashRanges:
    keys = json.loads(value) if value.strip().startswith("[") else parse_names(value)
    if not keys or not all(isinstance(key, str) for key in keys):
        raise ValueError("allowed: keys separated by commas, or a JSON list of strings")
    slots = sorted({key_slot(key) for key in keys})
    return KeyHashRanges(KeyHashRange(slot, slot) for slot in slots)


READ, STREAM, WRITE, SINK = "batch read", "streaming read", "batch write", "streaming write"
READS = (READ, STREAM)
WRITES = (WRITE, SINK)
ALL = (*READS, *WRITES)


@dataclass(frozen=True, slots=True)
class Option:
    """Option: its name as documented in docs/spark.md, its uses, its parser and its default."""

    name: str
    where: tuple[str, ...]
    parse: Callable[[str], object]
    default: object = None


_offsets = _by_topic_parser(_parse_offset, "`earliest`, `latest`, a message id")
_times = _by_topic_parser(_parse_time, "milliseconds or ISO 8601")

OPTIONS: Final = (
    Option("service.url", ALL, _url_parser("pulsar", "pulsar+ssl")),
    Option("admin.url", ALL, _url_parser("http", "https")),
    Option("token", ALL, parse_text),
    Option("topic", ALL, parse_topic),
    Option("topics", READS, lambda text: tuple(map(parse_topic, parse_names(text)))),
    Option("topicsPattern", READS, parse_pattern),
    Option("startingOffsets", READS, _offsets),
    Option("startingTime", READS, _times),
    Option("endingOffsets", (READ,), _offsets),
    Option("endingTime", (READ,), _times),
    Option("splitBy", READS, _choice_parser("partition", "entries", "keyHash")),
    Option("minPartitions", READS, _number_parser(1, 100_000)),
    Option("keyHashRanges", READS, KeyHashRanges.parse),
    Option("keys", READS, _parse_keys),
    Option("keyForms", READS, _choice_parser("text", "exact"), "text"),
    Option("filterPushdown", (READ,), parse_flag, default=False),
    Option("readCompacted", READS, parse_flag, default=False),
    Option("valueFormat", READS, _choice_parser("bytes", "string", "json", "avro"), "bytes"),
    Option("valueSchema", READS, parse_avro_schema),
    Option("keyFormat", READS, _choice_parser("bytes", "string", "json", "avro")),
    Option("keySchema", READS, parse_avro_schema),
    Option("allowDifferentTopicSchemas", READS, parse_flag, default=False),
    Option("columns", READS, parse_names),
    Option("failOnDataLoss", READS, parse_flag, default=True),
    Option("acceptDataLoss", READS, parse_names),
    Option("incompleteChunks", READS, _choice_parser("fail", "skip"), "fail"),
    Option("cryptoPrivateKeyFile", READS, parse_text),
    Option("pollTimeoutMs", READS, _number_parser(1000), 60_000),
    Option("waitingForNonExistedTopic", (STREAM,), parse_flag, default=False),
    Option("maxBatchRows", READS, _number_parser(1, 1_000_000), 4096),
    Option("maxBatchBytes", READS, _number_parser(1024), 16 << 20),
    Option("predefinedSubscription", (STREAM,), parse_text),
    Option("subscriptionPrefix", (STREAM,), parse_text, "spark-pulsar"),
    Option("maxEntriesPerTrigger", (STREAM,), _number_parser(1)),
    Option("maxBytesPerTrigger", (STREAM,), _number_parser(1)),
    Option("minEntriesPerTrigger", (STREAM,), _number_parser(1)),
    Option("maxTriggerDelay", (STREAM,), parse_duration, 900_000),
    Option("guarantee", WRITES, _choice_parser("at-least-once", "exactly-once"), "at-least-once"),
    Option("keyValueEncoding", WRITES, _choice_parser("INLINE", "SEPARATED")),
    Option("producerName", WRITES, parse_text),
    Option("unknownProducers", WRITES, _choice_parser("fail", "new"), "fail"),
    Option("cryptoPublicKeyFile", WRITES, parse_text),
    Option("encryptionKey", WRITES, parse_text),
    Option("laneBy", WRITES, parse_text),
)


def _count(least: int = 0) -> Callable[[str], int]:
    """Return a parser of the C++ client's numbers; `least` is the smallest that the client accepts or can use."""
    return _number_parser(least, 2**31 - 1)


PASSED_ON: Final[dict[str, dict[str, Callable[[str], object]]]] = {
    "pulsar.client.": {
        "operation_timeout_seconds": _count(1),
        "io_threads": _count(),
        "message_listener_threads": _count(),
        "concurrent_lookup_requests": _count(1),
        "connection_timeout_ms": _count(1),
        "stats_interval_in_seconds": _count(),
        "tls_trust_certs_file_path": str,
        "tls_allow_insecure_connection": parse_flag,
        "tls_validate_hostname": parse_flag,
        "tls_certificate_file_path": str,
        "tls_private_key_file_path": str,
        "listener_name": str,
    },
    "pulsar.reader.": {"receiver_queue_size": _count(1), "reader_name": str, "subscription_role_prefix": str},
    "pulsar.producer.": {
        "compression_type": _choice_parser("None", "LZ4", "ZLib", "ZSTD", "SNAPPY"),
        "chunking_enabled": parse_flag,
        "batching_enabled": parse_flag,
        "batching_type": _choice_parser("Default", "KeyBased"),
        "batching_max_messages": _count(2),
        "batching_max_allowed_size_in_bytes": _count(),
        "batching_max_publish_delay_ms": _count(),
        "max_pending_messages": _count(),
        "send_timeout_millis": _count(),
    },
}
"""Arguments of client, reader and producer that options with these prefixes set, in camelCase or snake_case."""


_HIDDEN = frozenset({"token"})
_ENVIRONMENT = {"service.url": "PULSAR_URL", "admin.url": "PULSAR_ADMIN_URL", "token": "PULSAR_TOKEN"}

_BY_KEY = {option.name.lower(): option for option in OPTIONS}
_CONFLICTS = (
    ("topic", "topics"),
    ("topic", "topicsPattern"),
    ("topics", "topicsPattern"),
    ("startingOffsets", "startingTime"),
    ("endingOffsets", "endingTime"),
    ("keyHashRanges", "keys"),
    ("readCompacted", "guarantee"),
    ("predefinedSubscription", "subscriptionPrefix"),
)
_NEEDS = (
    ("maxTriggerDelay", "minEntriesPerTrigger"),
    ("cryptoPublicKeyFile", "encryptionKey"),
    ("encryptionKey", "cryptoPublicKeyFile"),
)
_PASSED_FOR = {"pulsar.client.": ALL, "pulsar.reader.": READS, "pulsar.producer.": WRITES}


@dataclass(frozen=True, eq=False, repr=False)
class Settings:
    """Parsed options with defaults; `given` were set, `passed` are arguments for client, reader and producer."""

    where: str
    given: frozenset[str]
    passed: Mapping[str, Mapping[str, Any]]
    values: Mapping[str, object]

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def __repr__(self) -> str:
        shown = {name: "<hidden>" if name in _HIDDEN else self.values[name] for name in sorted(self.given)}
        return f"Settings({self.where}, {shown})"


def with_environment(options: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """Add URLs and the token of the environment, unless the options name a broker, which must not get that token."""
    named = {key.lower() for key in options}
    if "service.url" in named:
        return dict(options)
    added = {name: environment[key] for name, key in _ENVIRONMENT.items() if environment.get(key) and name not in named}
    return {**options, **added}


def parse_options(options: Mapping[str, str], where: str | None) -> Settings:
    """Check and parse options; a use of None is not known yet, and omits the checks that depend on it."""
    values: dict[str, object] = {}
    passed: dict[str, dict[str, object]] = {}
    for key, text in options.items():
        lower = key.lower()
        if lower == "path":
            raise InvalidUse('Set the topic by an option: .option("topic", …), not by a path.')
        if lower == "checkpointlocation":  # Spark adds it to a streaming write
            continue
        prefix = next((one for one in PASSED_ON if lower.startswith(one)), None)
        if prefix is not None:
            if where is not None and where not in _PASSED_FOR[prefix]:
                raise InvalidUse(_not_applicable(f"{prefix}*", where, _PASSED_FOR[prefix]))
            argument, value = _passed_argument(prefix, lower.removeprefix(prefix), text)
            passed.setdefault(prefix, {})[argument] = value
            continue
        option = _BY_KEY.get(lower)
        if option is None:
            raise InvalidUse(_unknown(lower, where))
        if where is not None and where not in option.where:
            raise InvalidUse(_not_applicable(option.name, where, option.where))
        try:
            values[option.name] = option.parse(text)
        except (ValueError, TypeError, KeyError) as error:
            shown = "" if option.name in _HIDDEN else f" {text!r}"
            raise InvalidUse(f"Option {option.name}{shown}: {error}") from None
    defaults = {option.name: option.default for option in OPTIONS}
    settings = Settings(where or "use", frozenset(values), passed, {**defaults, **values})
    _check(settings)
    return settings


def check_options(options: Mapping[str, str]) -> None:
    """Check options before their use is known: they have to be valid for some kind of read or write."""
    parse_options(options, None)
    errors: dict[str, InvalidUse] = {}
    for where in ALL:
        try:
            parse_options(options, where)
        except InvalidUse as error:
            errors[where] = error
        else:
            return

    def applying(where: str) -> int:
        passed = [uses for prefix, uses in _PASSED_FOR.items() for key in options if key.lower().startswith(prefix)]
        known = [_BY_KEY[key.lower()].where for key in options if key.lower() in _BY_KEY]
        return sum(where in uses for uses in (*passed, *known))

    raise errors[max(ALL, key=applying)]


def _not_applicable(name: str, where: str, uses: tuple[str, ...]) -> str:
    return f"Option {name} does not apply to a {where}, only to a {' or a '.join(uses)}."


def _passed_argument(prefix: str, name: str, text: str) -> tuple[str, object]:
    parsers = PASSED_ON[prefix]
    known = {argument.replace("_", ""): argument for argument in parsers}
    argument = known.get(name.replace("_", "").replace(".", ""))
    if argument is None:
        raise InvalidUse(f"Unknown option {prefix}{name}. The options are: {', '.join(map(camel_case, parsers))}.")
    try:
        return argument, parsers[argument](text)
    except ValueError as error:
        raise InvalidUse(f"Option {prefix}{camel_case(argument)} {text!r}: {error}") from None


def _check(settings: Settings) -> None:
    given = settings.given
    if "service.url" not in given:
        raise InvalidUse(
            'Option service.url is missing: .option("service.url", "pulsar://localhost:6650"). Or set PULSAR_URL in '
            "the environment of the driver before the session is started."
        )
    for one, two in _CONFLICTS:
        if one in given and two in given:
            raise InvalidUse(f"Options {one} and {two} conflict: set only one of them.")
    for one, two in _NEEDS:
        if one in given and two not in given:
            raise InvalidUse(f"Option {one} needs {two}.")
    if settings.where in READS:
        _check_read(settings)
    elif settings.where == WRITE and settings["guarantee"] == "exactly-once" and "producerName" not in given:
        raise InvalidUse(
            "An exactly-once batch write needs option producerName: by it the broker recognizes the messages that a "
            "repeated run resends."
        )
    producer = settings.passed.get("pulsar.producer.", {})
    if producer.get("chunking_enabled") and producer.get("batching_enabled"):
        raise InvalidUse("Options pulsar.producer.chunkingEnabled and batchingEnabled conflict: set only one of them.")
    batches = not producer.get("chunking_enabled") and producer.get("batching_enabled") is not False
    if settings["keyValueEncoding"] == "SEPARATED" and not batches:
        raise InvalidUse("Option keyValueEncoding SEPARATED needs batches: only a batch can carry keys as bytes.")


def _check_read(settings: Settings) -> None:
    if not {"topic", "topics", "topicsPattern"} & settings.given:
        raise InvalidUse("Nothing to read: set option topic, topics or topicsPattern.")
    split_by, tasks = settings["splitBy"], settings["minPartitions"]
    if split_by == "partition" and tasks is not None:
        raise InvalidUse(
            'splitBy "partition" makes one task for each partition; minPartitions needs splitBy "entries" or "keyHash".'
        )
    if split_by in ("entries", "keyHash") and tasks is None:
        raise InvalidUse(f"splitBy {split_by!r} needs minPartitions, the number of tasks.")
    if settings["readCompacted"] and (split_by == "entries" or (split_by is None and tasks is not None)):
        raise InvalidUse('readCompacted needs splitBy "partition" or "keyHash"; it cannot be used with "entries".')
    least, most = settings["minEntriesPerTrigger"], settings["maxEntriesPerTrigger"]
    if least is not None and most is not None and least > most:
        raise InvalidUse(f"minEntriesPerTrigger {least} is more than maxEntriesPerTrigger {most}.")
    for part in ("value", "key"):
        if f"{part}Schema" in settings.given and settings[f"{part}Format"] not in ("json", "avro"):
            raise InvalidUse(f"Option {part}Schema needs {part}Format json or avro.")


def _unknown(key: str, where: str | None) -> str:
    allowed = [option.name for option in OPTIONS if where is None or where in option.where]
    near = difflib.get_close_matches(key, [name.lower() for name in allowed], n=1)
    hint = f" Did you mean {_BY_KEY[near[0]].name}?" if near else ""
    return (
        f"Unknown option {key!r}.{hint} The options{f' of a {where}' if where else ''} are: {', '.join(allowed)}, "
        f"and those that begin with {', '.join(PASSED_ON)}."
    )


def camel_case(argument: str) -> str:
    """Return the option's name of an argument."""
    head, *rest = argument.split("_")
    return head + "".join(part.capitalize() for part in rest)
