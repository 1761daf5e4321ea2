"""The table of options of `spark.read.format("pulsar")`: each one's values, its default, and where it counts (pure)."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from .option_values import (
    a_choice,
    a_duration,
    a_flag,
    a_moment,
    a_number,
    a_pattern,
    a_text,
    a_topic,
    a_url,
    an_avro_schema,
    an_offset,
    by_topic,
    some_keys,
    some_names,
    some_ranges,
    some_topics,
)

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ALL", "OPTIONS", "PASSED_ON", "READ", "READS", "SINK", "STREAM", "WRITE", "WRITES", "Option"]

READ, STREAM, WRITE, SINK = "batch read", "streaming read", "batch write", "streaming write"
READS = (READ, STREAM)
WRITES = (WRITE, SINK)
ALL = (*READS, *WRITES)


@dataclass(frozen=True, slots=True)
class Option:
    """One option: its name as documented, where it applies, its reader, its default and what it means."""

    name: str
    where: tuple[str, ...]
    parse: Callable[[str], Any]
    default: Any
    meaning: str

    @property
    def values(self) -> str:
        """What it takes, for the table."""
        kinds: dict[Any, str] = {
            a_text: "text",
            a_topic: "name",
            an_avro_schema: "JSON",
            some_topics: "names, comma-separated",
            a_flag: "true \\| false",
            a_duration: "duration",
            some_names: "names, comma-separated",
            a_pattern: "regular expression",
            some_ranges: "`0-10000,20001-30000`",
            some_keys: "keys, comma-separated or a JSON list",
        }
        return kinds.get(self.parse) or self.parse.__doc__ or ""


_ID = "`earliest`, `latest`, a message id"
_TIME = "milliseconds or ISO 8601"

OPTIONS: Final = (
    Option("service.url", ALL, a_url("pulsar", "pulsar+ssl"), None, "The broker, `pulsar://host:6650`. Required."),
    Option("admin.url", ALL, a_url("http", "https"), None, "Its admin API; by default the same host's usual port."),
    Option("token", ALL, a_text, None, "The token to authenticate with. Never shown, in plans neither."),
    Option("topic", ALL, a_topic, None, "The topic to read, or to write where a row names none."),
    Option("topics", READS, some_topics, None, "Several topics."),
    Option(
        "topicsPattern",
        READS,
        a_pattern,
        None,
        "Every topic whose full name matches `tenant/namespace/expression`; new ones join a streaming query.",
    ),
    Option(
        "startingOffsets",
        READS,
        by_topic(an_offset, _ID),
        None,
        "Where to begin, that message included. Default: `earliest`, for a stream `latest`.",
    ),
    Option(
        "startingTime",
        READS,
        by_topic(a_moment, _TIME),
        None,
        "Begin at the first entry published then or later.",
    ),
    Option("endingOffsets", (READ,), by_topic(an_offset, _ID), None, "Where to end, that message included."),
    Option(
        "endingTime", (READ,), by_topic(a_moment, _TIME), None, "End before the first entry published then or later."
    ),
    Option(
        "splitBy",
        READS,
        a_choice("partition", "entries", "keyHash"),
        None,
        "`partition`: a task for each topic partition. `entries`: a partition is shared among tasks, each entry read "
        "by one. `keyHash`: a key stays in one task, each task reads everything. Default: `entries` with "
        "`minPartitions`, else `partition`.",
    ),
    Option("minPartitions", READS, a_number(1, 100_000), None, "How many tasks at least, if there are entries."),
    Option("keyHashRanges", READS, some_ranges, None, "Read only messages whose key slot is in these ranges."),
    Option("keys", READS, some_keys, None, "Read only the slots that these keys are in."),
    Option(
        "keyForms",
        READS,
        a_choice("text", "exact"),
        "text",
        "`exact` asks the admin API about each key that may have been sent as bytes; `text` takes keys as they look.",
    ),
    Option(
        "filterPushdown",
        (READ,),
        a_flag,
        default=False,
        meaning="Let Spark push filters on `__keySlot` down; it needs `spark.sql.python.filterPushdown.enabled`.",
    ),
    Option("readCompacted", READS, a_flag, default=False, meaning="Read the last message of each key only."),
    Option(
        "valueFormat",
        READS,
        a_choice("bytes", "string", "json", "avro"),
        "bytes",
        "`json` and `avro` make columns of the value's fields, by `valueSchema` or the topic's own schema.",
    ),
    Option("valueSchema", READS, an_avro_schema, None, "An Avro schema in JSON, in place of the topic's own."),
    Option(
        "allowDifferentTopicSchemas",
        READS,
        a_flag,
        default=False,
        meaning="Take the first topic's schema for all.",
    ),
    Option("columns", READS, some_names, None, "Which columns to give; a schema given to `.schema()` does the same."),
    Option(
        "failOnDataLoss",
        READS,
        a_flag,
        default=True,
        meaning="Fail where messages that were to be read were trimmed; `false` goes on with a warning.",
    ),
    Option(
        "incompleteChunks",
        READS,
        a_choice("fail", "skip"),
        "fail",
        "What to do about a chunked message whose end has not come within `pollTimeoutMs`.",
    ),
    Option("pollTimeoutMs", READS, a_number(1000), 60_000, "How long a task waits for a message that must come."),
    Option(
        "waitingForNonExistedTopic",
        (STREAM,),
        a_flag,
        default=False,
        meaning="Start with a topic that does not exist yet; otherwise that raises.",
    ),
    Option("maxBatchRows", READS, a_number(1, 1_000_000), 4096, "Most rows of an Arrow batch."),
    Option("maxBatchBytes", READS, a_number(1024), 16 << 20, "Payload of an Arrow batch, one message more at most."),
    Option(
        "predefinedSubscription",
        (STREAM,),
        a_text,
        None,
        "The query's durable subscription; if it exists, the query starts where it stands.",
    ),
    Option(
        "subscriptionPrefix",
        (STREAM,),
        a_text,
        "spark-pulsar",
        "Begins the name that a query without `predefinedSubscription` gives itself and keeps in its checkpoint.",
    ),
    Option("maxEntriesPerTrigger", (STREAM,), a_number(1), None, "Most entries of a batch, over all partitions."),
    Option("maxBytesPerTrigger", (STREAM,), a_number(1), None, "Most stored bytes of a batch, by ledgers' averages."),
    Option("minEntriesPerTrigger", (STREAM,), a_number(1), None, "Wait until there are so many entries,"),
    Option("maxTriggerDelay", (STREAM,), a_duration, 900_000, "but no longer than this. Default: 15m."),
    Option(
        "guarantee",
        WRITES,
        a_choice("at-least-once", "exactly-once"),
        "at-least-once",
        "`exactly-once` needs deduplication on the topic, and in a batch write a `producerName`.",
    ),
    Option("producerName", WRITES, a_text, None, "Begins the names of the producers, one a lane."),
    Option("laneBy", WRITES, a_text, None, "A column whose values are the lanes, instead of Spark's partitions."),
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
"""Arguments of the client, the reader and the producer that options with these prefixes set, in camelCase or not."""
