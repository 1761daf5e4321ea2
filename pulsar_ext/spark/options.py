"""Parses, checks and documents the options of `format("pulsar")`, by their table (pure).

Spark passes every option as text, with its key in lower case. An option that is unknown, contradicts another one or
cannot be parsed raises when the data source is created, before anything is connected, and the error says what is
allowed.
"""

from __future__ import annotations

import difflib
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pulsar_ext.errors import InvalidUse

from .option_table import ALL, OPTIONS, PASSED_ON, READ, READS, SINK, STREAM, WRITE, WRITES
from .option_values import a_flag, a_number

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Settings", "check_options", "option_table", "parse_options", "with_environment"]

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
"""What the client library refuses to go below, or can do nothing with."""
_MOST = 2**31 - 1
_PASSED_FOR = {"pulsar.client.": ALL, "pulsar.reader.": READS, "pulsar.producer.": WRITES}


class Settings:
    """Parsed options by name, including defaults; `given` has the names of those that were set.

    They can be pickled, and the token is never part of the repr.

    Args:
        where: what the options are for, such as "batch read".
        values: the parsed options that were set.
        passed: by prefix, the arguments of the client, the reader or the producer.
    """

    def __init__(self, where: str, values: Mapping[str, Any], passed: Mapping[str, Mapping[str, Any]]) -> None:
        self.where = where
        self.given = frozenset(values)
        self.passed = {prefix: dict(arguments) for prefix, arguments in passed.items()}
        self._values = {option.name: values.get(option.name, option.default) for option in OPTIONS}

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def having(self, name: str, value: Any) -> Settings:
        """Give the same options with a value that was found out for one that was not set."""
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
    """Add where the broker is and the token from the environment, if the options do not say where it is.

    Options that name a broker are complete: a token of the environment does not go to another one.
    """
    named = {key.lower() for key in options}
    if "service.url" in named:
        return dict(options)
    added = {name: environment[key] for name, key in _ENVIRONMENT.items() if environment.get(key) and name not in named}
    return {**options, **added}


def parse_options(options: Mapping[str, str], where: str | None) -> Settings:
    """Check and parse options.

    Args:
        options: as Spark gives them; keys in any case.
        where: what they are for: "batch read", "streaming read", "batch write" or "streaming write"; None if that is
            not known yet, which omits the checks that depend on it.

    Raises:
        InvalidUse: an option is unknown, missing or does not apply, two conflict, or a value cannot be parsed.
    """
    values: dict[str, Any] = {}
    passed: dict[str, dict[str, Any]] = {}
    for key, text in options.items():
        lower = key.lower()
        if lower in _SPARKS_OWN:
            if lower == "path":
                raise InvalidUse('Give the topic as an option: .option("topic", …), not as a path.')
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
    """Check options before it is known what they are for: they have to be valid for some kind of read or write.

    Raises:
        InvalidUse: they are valid for none; the error is that of the kind which most of them apply to.
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
            f"There is no option {prefix}{name}. The options are: {', '.join(map(_camel, PASSED_ON[prefix]))}."
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
            return argument, a_flag(text)
        return argument, a_number(_LEAST.get(argument, 0), _MOST)(text)
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
            raise InvalidUse(f"Options {one} and {two} contradict each other: give only one of them.")
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
            "An exactly-once batch write needs option producerName: by it the broker recognizes what a repeated run "
            "sends again."
        )


def _check_producer(producer: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    if producer.get("chunking_enabled") and producer.get("batching_enabled"):
        raise InvalidUse("Options pulsar.producer.chunkingEnabled and batchingEnabled contradict each other.")
    if values.get("keyValueEncoding") == "SEPARATED" and (
        producer.get("chunking_enabled") or producer.get("batching_enabled") is False
    ):
        raise InvalidUse("Option keyValueEncoding SEPARATED needs batches, by which alone keys can be sent as bytes.")


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
        f"There is no option {key!r}.{hint} The options{f' of a {where}' if where else ''} are: {', '.join(allowed)}, "
        f"and those that begin with {', '.join(PASSED_ON)}."
    )


def _camel(argument: str) -> str:
    head, *rest = argument.split("_")
    return head + "".join(part.capitalize() for part in rest)


def option_table() -> str:
    """Write the options as a Markdown table."""
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
