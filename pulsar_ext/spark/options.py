"""Table of the options of `format("pulsar")`, and the functions that parse, check and document them (pure).

Spark passes every option as text, with its key in lower case. An option that is unknown, conflicts with another one or
cannot be parsed raises when the data source is created, before any connection is made. The error lists the allowed
values.
"""

from __future__ import annotations

import difflib
import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from pulsar_ext.errors import InvalidUse
from pulsar_ext.ids.topic_name import TopicName
from pulsar_ext.key_shared.hash_ranges import KeyHashRange, KeyHashRanges
from pulsar_ext.key_shared.hashing import key_slot

from .offsets import Offset

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def parse_text(value: str) -> str:
    """Return text, which must not be empty."""
    if not value.strip():
        raise ValueError("it is empty")
    return value.strip()


def url_parser(*schemes: str) -> Callable[[str], str]:
    """Return a parser of URLs with these schemes."""

    def parse(value: str) -> str:
        text = parse_text(value)
        if not re.fullmatch(rf"(?:{'|'.join(map(re.escape, schemes))})://[^\s/]+/?.*", text):
            raise ValueError(f"allowed: a URL that begins with {' or '.join(f'{scheme}://' for scheme in schemes)}")
        return text

    parse.__doc__ = "URL"
    return parse


def parse_topic(value: str) -> str:
    """Check a topic name, and return it."""
    text = parse_text(value)
    TopicName.parse(text)
    return text


def parse_topics(value: str) -> tuple[str, ...]:
    """Parse topic names, separated by commas."""
    return tuple(map(parse_topic, parse_names(value)))


def parse_avro_schema(value: str) -> str:
    """Check an Avro schema in JSON, and return it unchanged."""
    try:
        found = json.loads(value)
    except ValueError as error:
        raise ValueError(f"allowed: an Avro schema in JSON ({error})") from None
    if not isinstance(found, dict):
        raise TypeError("allowed: an Avro schema in JSON, which is an object with type and fields")
    return value


def parse_flag(value: str) -> bool:
    """Parse true or false."""
    try:
        return {"true": True, "false": False}[value.strip().lower()]
    except KeyError:
        raise ValueError("allowed: true, false") from None


def choice_parser(*allowed: str) -> Callable[[str], str]:
    """Return a parser of one of several words."""

    def parse(value: str) -> str:
        known = {one.lower(): one for one in allowed}
        if value.strip().lower() not in known:
            raise ValueError(f"allowed: {', '.join(allowed)}")
        return known[value.strip().lower()]

    parse.__doc__ = " \\| ".join(allowed)
    return parse


def number_parser(least: int, most: int = 2**63 - 1) -> Callable[[str], int]:
    """Return a parser of whole numbers within limits."""

    def parse(value: str) -> int:
        if not re.fullmatch(r"\d{1,19}", value.strip(), re.ASCII) or not least <= int(value) <= most:
            raise ValueError(f"allowed: a whole number from {least}" + (f" to {most}" if most < 2**63 - 1 else ""))
        return int(value)

    parse.__doc__ = f"a number, {least} or more"
    return parse


_UNITS: Final = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000}


def parse_duration(value: str) -> int:
    """Parse a duration such as `90s`, `15m` or `500ms`; return milliseconds."""
    match = re.fullmatch(r"(\d{1,12})\s*(ms|s|m|min|h)?", value.strip().lower(), re.ASCII)
    if match is None:
        raise ValueError("allowed: a duration such as 500ms, 90s, 15m or 1h; a bare number is milliseconds")
    return int(match[1]) * _UNITS[match[2] or "ms"]


def parse_names(value: str) -> tuple[str, ...]:
    """Parse names, separated by commas."""
    names = tuple(dict.fromkeys(name.strip() for name in value.split(",") if name.strip()))
    if not names:
        raise ValueError("allowed: names separated by commas")
    return names


def parse_pattern(value: str) -> str:
    """Check a regular expression, and return it."""
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"allowed: a regular expression of topic names ({error})") from None
    return parse_text(value)


def by_topic_parser(one: Callable[[Any], Any], what: str) -> Callable[[str], Any]:
    """Return a parser of one value for all topics, or of a JSON object by topic; an offset may be an object too."""

    def parse(value: str) -> Any:
        text = value.strip()
        if not text.startswith("{"):
            return one(parse_text(value))
        try:
            found = json.loads(text)
        except ValueError as error:
            raise ValueError(f"allowed: {what}, or a JSON object of them by topic ({error})") from None
        if not found:
            raise ValueError("the JSON object is empty")
        if one is parse_offset and isinstance(found.get("ledger"), int):
            return one(found)
        return MappingProxyType({topic: one(item) for topic, item in found.items()})

    parse.__doc__ = f"{what}, or JSON `{{topic: …}}`"
    return parse


def parse_time(value: Any) -> int:
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


def parse_offset(value: Any) -> Any:
    """Parse earliest, latest or a message id."""
    if isinstance(value, str) and value.strip().lower() in ("earliest", "latest"):
        return value.strip().lower()
    return Offset.of_message(value)


def parse_ranges(value: str) -> KeyHashRanges:
    """Parse ranges of key slots."""
    return KeyHashRanges.parse(value)


def parse_keys(value: str) -> KeyHashRanges:
    """Parse keys, as a JSON list or separated by commas; return their slots."""
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
    """Option: its name as documented, its uses, its parser, its default and its meaning."""

    name: str
    where: tuple[str, ...]
    parse: Callable[[str], Any]
    default: Any
    meaning: str

    @property
    def values(self) -> str:
        """Allowed values, for the documented table."""
        kinds: dict[Any, str] = {
            parse_text: "text",
            parse_topic: "name",
            parse_avro_schema: "JSON",
            parse_topics: "names, comma-separated",
            parse_flag: "true \\| false",
            parse_duration: "duration",
            parse_names: "names, comma-separated",
            parse_pattern: "regular expression",
            parse_ranges: "`0-10000,20001-30000`",
            parse_keys: "keys, comma-separated or a JSON list",
        }
        return kinds.get(self.parse) or self.parse.__doc__ or ""


_ID = "`earliest`, `latest`, a message id"
_TIME = "milliseconds or ISO 8601"

OPTIONS: Final = (
    Option(
        "service.url",
        ALL,
        url_parser("pulsar", "pulsar+ssl"),
        None,
        "The broker, such as `pulsar://host:6650`. Required, unless `PULSAR_URL` is set.",
    ),
    Option(
        "admin.url",
        ALL,
        url_parser("http", "https"),
        None,
        "Its admin API. Default: the usual port on the same host. Required with a token, unless `service.url` begins "
        "with `pulsar+ssl://`.",
    ),
    Option(
        "token", ALL, parse_text, None, "The token to authenticate with. It is never shown, not even in query plans."
    ),
    Option("topic", ALL, parse_topic, None, "The topic to read, or to write all rows to."),
    Option("topics", READS, parse_topics, None, "Several topics to read."),
    Option(
        "topicsPattern",
        READS,
        parse_pattern,
        None,
        "All topics that match `tenant/namespace/expression`, where `expression` is a regular expression. New topics "
        "join a streaming query.",
    ),
    Option(
        "startingOffsets",
        READS,
        by_topic_parser(parse_offset, _ID),
        None,
        "First message to read, inclusive. Default: `earliest`, for a stream `latest`.",
    ),
    Option(
        "startingTime",
        READS,
        by_topic_parser(parse_time, _TIME),
        None,
        "Begin at the first entry published at this time or later.",
    ),
    Option("endingOffsets", (READ,), by_topic_parser(parse_offset, _ID), None, "Last message to read, inclusive."),
    Option(
        "endingTime",
        (READ,),
        by_topic_parser(parse_time, _TIME),
        None,
        "End before the first entry published at this time or later.",
    ),
    Option(
        "splitBy",
        READS,
        choice_parser("partition", "entries", "keyHash"),
        None,
        "`partition`: one task for each topic partition. `entries`: several tasks share a partition, and each entry is "
        "read by one of them. `keyHash`: each key is read by one task, but every task reads all entries to select its "
        "keys. Default: `entries` with `minPartitions`, else `partition`.",
    ),
    Option(
        "minPartitions",
        READS,
        number_parser(1, 100_000),
        None,
        "The minimum number of tasks, if there are as many entries.",
    ),
    Option("keyHashRanges", READS, parse_ranges, None, "Read only messages whose key slot is in these ranges."),
    Option("keys", READS, parse_keys, None, "Read only messages in the key slots of these keys."),
    Option(
        "keyForms",
        READS,
        choice_parser("text", "exact"),
        "text",
        "`text` treats every key as text. `exact` queries the admin API for each key that may have been sent as bytes.",
    ),
    Option(
        "filterPushdown",
        (READ,),
        parse_flag,
        default=False,
        meaning="Let Spark push down filters on `__keySlot`; needs `spark.sql.python.filterPushdown.enabled`.",
    ),
    Option(
        "readCompacted",
        READS,
        parse_flag,
        default=False,
        meaning="Read the compacted topic: the last message of each key.",
    ),
    Option(
        "valueFormat",
        READS,
        choice_parser("bytes", "string", "json", "avro"),
        "bytes",
        "`json` and `avro` decode the value's fields into columns, by `valueSchema` or the topic's own schema.",
    ),
    Option(
        "valueSchema",
        READS,
        parse_avro_schema,
        None,
        "An Avro schema in JSON that defines the columns, instead of the topic's own.",
    ),
    Option(
        "keyFormat",
        READS,
        choice_parser("bytes", "string", "json", "avro"),
        None,
        "Decode the keys of a KEY_VALUE topic into the column `__keyPart`: as bytes, text, or fields.",
    ),
    Option(
        "keySchema",
        READS,
        parse_avro_schema,
        None,
        "An Avro schema in JSON that defines the fields of `__keyPart`, instead of the topic's own.",
    ),
    Option(
        "allowDifferentTopicSchemas",
        READS,
        parse_flag,
        default=False,
        meaning="Use the first topic's schema for all topics.",
    ),
    Option(
        "columns", READS, parse_names, None, "The columns to read; an alternative to a schema passed to `.schema()`."
    ),
    Option(
        "failOnDataLoss",
        READS,
        parse_flag,
        default=True,
        meaning="Fail, at each start, if messages to be read were trimmed. `false` warns and continues without them.",
    ),
    Option(
        "acceptDataLoss",
        READS,
        parse_names,
        None,
        "Continue without the losses of these names, listed in the error of `failOnDataLoss`; other losses still fail.",
    ),
    Option(
        "incompleteChunks",
        READS,
        choice_parser("fail", "skip"),
        "fail",
        "What to do with a chunked message that is incomplete after `pollTimeoutMs`: fail, or skip it.",
    ),
    Option(
        "cryptoPrivateKeyFile",
        READS,
        parse_text,
        None,
        "A file on each executor with the private key, in PEM, that decrypts messages. Without it, a read fails at an "
        "encrypted message.",
    ),
    Option(
        "pollTimeoutMs",
        READS,
        number_parser(1000),
        60_000,
        "The maximum time in milliseconds for which a task waits for the next message.",
    ),
    Option(
        "waitingForNonExistedTopic",
        (STREAM,),
        parse_flag,
        default=False,
        meaning="Wait for a topic that does not exist yet, instead of failing.",
    ),
    Option("maxBatchRows", READS, number_parser(1, 1_000_000), 4096, "The maximum number of rows in an Arrow batch."),
    Option(
        "maxBatchBytes",
        READS,
        number_parser(1024),
        16 << 20,
        "The payload in bytes at which an Arrow batch ends; it includes the message that reaches it.",
    ),
    Option(
        "predefinedSubscription",
        (STREAM,),
        parse_text,
        None,
        "The query's durable subscription. If it exists, the query starts at its cursor.",
    ),
    Option(
        "subscriptionPrefix",
        (STREAM,),
        parse_text,
        "spark-pulsar",
        "Without `predefinedSubscription`: the prefix of the subscription's name, which is stored in the checkpoint.",
    ),
    Option(
        "maxEntriesPerTrigger",
        (STREAM,),
        number_parser(1),
        None,
        "The maximum number of entries in a batch, over all partitions.",
    ),
    Option(
        "maxBytesPerTrigger",
        (STREAM,),
        number_parser(1),
        None,
        "The maximum stored bytes of a batch, estimated from the topics' average entries.",
    ),
    Option(
        "minEntriesPerTrigger",
        (STREAM,),
        number_parser(1),
        None,
        "Wait for at least this many entries, up to `maxTriggerDelay`.",
    ),
    Option(
        "maxTriggerDelay",
        (STREAM,),
        parse_duration,
        900_000,
        "The maximum wait for `minEntriesPerTrigger`. Default: 15m.",
    ),
    Option(
        "guarantee",
        WRITES,
        choice_parser("at-least-once", "exactly-once"),
        "at-least-once",
        "`exactly-once` needs deduplication on the topic, and in a batch write a `producerName`.",
    ),
    Option(
        "keyValueEncoding",
        WRITES,
        choice_parser("INLINE", "SEPARATED"),
        None,
        "Write keys and values as Java's `KeyValueSchema` does: `__key` and `value` are the bytes of each.",
    ),
    Option(
        "producerName",
        WRITES,
        parse_text,
        None,
        "The prefix of the producers' names. Each group of rows (see `laneBy`) has its own producer.",
    ),
    Option(
        "unknownProducers",
        WRITES,
        choice_parser("fail", "new"),
        "fail",
        "`exactly-once`: what to do if neither the broker nor the last 10,000 entries of a longer topic know a "
        "producer's name: fail, or treat the producer as new.",
    ),
    Option(
        "cryptoPublicKeyFile",
        WRITES,
        parse_text,
        None,
        "A file on each executor with the public key, in PEM, that all messages are encrypted with; needs "
        "`encryptionKey`.",
    ),
    Option("encryptionKey", WRITES, parse_text, None, "The name of that key, by which consumers select it."),
    Option(
        "laneBy",
        WRITES,
        parse_text,
        None,
        "A column whose values group the rows, instead of Spark's partitions. The rows of a group are written in order "
        "by one producer.",
    ),
)

PASSED_ON: Final = MappingProxyType(
    {
        "pulsar.client.": (
            "operation_timeout_seconds",
            "io_threads",
            "message_listener_threads",
            "concurrent_lookup_requests",
            "connection_timeout_ms",
            "stats_interval_in_seconds",
            "tls_trust_certs_file_path",
            "tls_allow_insecure_connection",
            "tls_validate_hostname",
            "tls_certificate_file_path",
            "tls_private_key_file_path",
            "listener_name",
        ),
        "pulsar.reader.": ("receiver_queue_size", "reader_name", "subscription_role_prefix"),
        "pulsar.producer.": (
            "compression_type",
            "chunking_enabled",
            "batching_enabled",
            "batching_type",
            "batching_max_messages",
            "batching_max_allowed_size_in_bytes",
            "batching_max_publish_delay_ms",
            "max_pending_messages",
            "send_timeout_millis",
        ),
    }
)
"""Arguments of client, reader and producer that options with these prefixes set, in camelCase or snake_case."""


_HIDDEN = frozenset({"token"})
_ENVIRONMENT = {"service.url": "PULSAR_URL", "admin.url": "PULSAR_ADMIN_URL", "token": "PULSAR_TOKEN"}
_SPARKS_OWN = frozenset({"path", "checkpointlocation"})
"""Options that Spark itself adds: the argument of `load(path)`, and the checkpoint of a streaming write."""

_BY_KEY = {option.name.lower(): option for option in OPTIONS}
_ENUMS = {"compression_type": ("None", "LZ4", "ZLib", "ZSTD", "SNAPPY"), "batching_type": ("Default", "KeyBased")}
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
_LEAST = {
    "operation_timeout_seconds": 1,
    "connection_timeout_ms": 1,
    "concurrent_lookup_requests": 1,
    "receiver_queue_size": 1,
    "batching_max_messages": 2,
}
"""Smallest values that the client library accepts or can use."""
_MOST = 2**31 - 1
_PASSED_FOR = {"pulsar.client.": ALL, "pulsar.reader.": READS, "pulsar.producer.": WRITES}


class Settings:
    """Parsed options by name, including defaults; `given` has the names of those that were set.

    Settings can be pickled, and their repr never shows the token.

    Args:
        where: the use of the options, such as "batch read".
        values: the parsed options that were set.
        passed: the arguments of the client, the reader or the producer, by prefix.
    """

    def __init__(self, where: str, values: Mapping[str, Any], passed: Mapping[str, Mapping[str, Any]]) -> None:
        self.where = where
        self.given = frozenset(values)
        self.passed = {prefix: dict(arguments) for prefix, arguments in passed.items()}
        self._values = {option.name: values.get(option.name, option.default) for option in OPTIONS}

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def with_value(self, name: str, value: Any) -> Settings:
        """Return a copy with a value, determined at run time, for an option that was not set."""
        found = Settings(self.where, {}, self.passed)
        found.given, found._values = self.given, {**self._values, name: value}
        return found

    def __repr__(self) -> str:
        shown = {name: "<hidden>" if name in _HIDDEN else self._values[name] for name in sorted(self.given)}
        return f"Settings({self.where}, {shown})"

    def __getstate__(self) -> dict[str, Any]:
        plain = {k: dict(v) if isinstance(v, MappingProxyType) else v for k, v in self._values.items()}
        return {"where": self.where, "given": self.given, "passed": self.passed, "_values": plain}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


def with_environment(options: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """Add the broker's URLs and the token from the environment, unless the options name a broker.

    Options that name a broker are complete: the environment's token must not be sent to another broker.
    """
    named = {key.lower() for key in options}
    if "service.url" in named:
        return dict(options)
    added = {name: environment[key] for name, key in _ENVIRONMENT.items() if environment.get(key) and name not in named}
    return {**options, **added}


def parse_options(options: Mapping[str, str], where: str | None) -> Settings:
    """Check and parse options.

    Args:
        options: as passed by Spark; keys in any case.
        where: their use: "batch read", "streaming read", "batch write" or "streaming write"; None if it is not known
            yet, which omits the checks that depend on it.

    Raises:
        InvalidUse: an option is unknown, missing or does not apply, two conflict, or a value cannot be parsed.
    """
    values: dict[str, Any] = {}
    passed: dict[str, dict[str, Any]] = {}
    for key, text in options.items():
        lower = key.lower()
        if lower in _SPARKS_OWN:
            if lower == "path":
                raise InvalidUse('Set the topic by an option: .option("topic", …), not by a path.')
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
    _check(values, where)
    producer = passed.get("pulsar.producer.", {})
    _check_producer(producer, values)
    return Settings(where or "use", values, passed)


def check_options(options: Mapping[str, str]) -> None:
    """Check options before their use is known: they have to be valid for some kind of read or write.

    Raises:
        InvalidUse: they are valid for no use; the error is that of the use which most of them apply to.
    """
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


def _passed_argument(prefix: str, name: str, text: str) -> tuple[str, Any]:
    known = {argument.replace("_", ""): argument for argument in PASSED_ON[prefix]}
    argument = known.get(name.replace("_", "").replace(".", ""))
    if argument is None:
        raise InvalidUse(
            f"Unknown option {prefix}{name}. The options are: {', '.join(map(_camel, PASSED_ON[prefix]))}."
        )
    shown = f"Option {prefix}{_camel(argument)} {text!r}"
    if argument in _ENUMS:
        choices = {one.lower(): one for one in _ENUMS[argument]}
        if text.strip().lower() not in choices:
            raise InvalidUse(f"{shown}: allowed: {', '.join(_ENUMS[argument])}")
        return argument, choices[text.strip().lower()]
    if argument.endswith(("_path", "_name", "_prefix")):
        return argument, text
    try:
        if argument.startswith(("tls_", "chunking_", "batching_enabled")):
            return argument, parse_flag(text)
        return argument, number_parser(_LEAST.get(argument, 0), _MOST)(text)
    except ValueError as error:
        raise InvalidUse(f"{shown}: {error}") from None


def _check(values: Mapping[str, Any], where: str | None) -> None:
    if "service.url" not in values:
        raise InvalidUse(
            'Option service.url is missing: .option("service.url", "pulsar://localhost:6650"). Or set PULSAR_URL in '
            "the environment of the driver before the session is started."
        )
    for one, two in _CONFLICTS:
        if one in values and two in values:
            raise InvalidUse(f"Options {one} and {two} conflict: set only one of them.")
    for one, two in _NEEDS:
        if one in values and two not in values:
            raise InvalidUse(f"Option {one} needs {two}.")
    if where in READS:
        if not {"topic", "topics", "topicsPattern"} & set(values):
            raise InvalidUse("Nothing to read: set option topic, topics or topicsPattern.")
        _check_splitting(values)
        _check_limits(values)
        _check_schemas(values)
    elif where == WRITE and values.get("guarantee") == "exactly-once" and "producerName" not in values:
        raise InvalidUse(
            "An exactly-once batch write needs option producerName: by it the broker recognizes the messages that a "
            "repeated run resends."
        )


def _check_producer(producer: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    if producer.get("chunking_enabled") and producer.get("batching_enabled"):
        raise InvalidUse("Options pulsar.producer.chunkingEnabled and batchingEnabled conflict: set only one of them.")
    if values.get("keyValueEncoding") == "SEPARATED" and (
        producer.get("chunking_enabled") or producer.get("batching_enabled") is False
    ):
        raise InvalidUse("Option keyValueEncoding SEPARATED needs batches: only a batch can carry keys as bytes.")


def _check_schemas(values: Mapping[str, Any]) -> None:
    for part in ("value", "key"):
        if f"{part}Schema" in values and values.get(f"{part}Format") not in ("json", "avro"):
            raise InvalidUse(f"Option {part}Schema needs {part}Format json or avro.")


def _check_splitting(values: Mapping[str, Any]) -> None:
    split_by = values.get("splitBy")
    if split_by == "partition" and "minPartitions" in values:
        raise InvalidUse(
            'splitBy "partition" makes one task for each partition; minPartitions needs splitBy "entries" or "keyHash".'
        )
    if split_by in ("entries", "keyHash") and "minPartitions" not in values:
        raise InvalidUse(f"splitBy {split_by!r} needs minPartitions, the number of tasks.")
    if values.get("readCompacted") and (split_by == "entries" or (split_by is None and "minPartitions" in values)):
        raise InvalidUse('readCompacted needs splitBy "partition" or "keyHash"; it cannot be used with "entries".')


def _check_limits(values: Mapping[str, Any]) -> None:
    least, most = values.get("minEntriesPerTrigger"), values.get("maxEntriesPerTrigger")
    if least is not None and most is not None and least > most:
        raise InvalidUse(f"minEntriesPerTrigger {least} is more than maxEntriesPerTrigger {most}.")


def _unknown(key: str, where: str | None) -> str:
    allowed = [option.name for option in OPTIONS if where is None or where in option.where]
    near = difflib.get_close_matches(key, [name.lower() for name in allowed], n=1)
    hint = f" Did you mean {_BY_KEY[near[0]].name}?" if near else ""
    return (
        f"Unknown option {key!r}.{hint} The options{f' of a {where}' if where else ''} are: {', '.join(allowed)}, "
        f"and those that begin with {', '.join(PASSED_ON)}."
    )


def _camel(argument: str) -> str:
    head, *rest = argument.split("_")
    return head + "".join(part.capitalize() for part in rest)


def option_table() -> str:
    """Return the options as a Markdown table."""
    short = {READ: "read", STREAM: "readStream", WRITE: "write", SINK: "writeStream"}
    lines = ["| option | for | values | default | meaning |", "|---|---|---|---|---|"]
    for option in OPTIONS:
        where = "all" if option.where == ALL else ", ".join(short[one] for one in option.where)
        default = "" if option.default is None else f"`{str(option.default).lower()}`"
        lines.append(f"| `{option.name}` | {where} | {option.values} | {default} | {option.meaning} |")
    for prefix, arguments in PASSED_ON.items():
        names = ", ".join(f"`{_camel(argument)}`" for argument in arguments)
        lines.append(f"| `{prefix}*` | | | | Arguments of the client library: {names}. |")
    return "\n".join(lines) + "\n"
