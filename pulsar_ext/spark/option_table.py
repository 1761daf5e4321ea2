"""The options of `format("pulsar")` in one table: the values of each, its default, and what it applies to (pure)."""

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
    """One option: its name as documented, what it applies to, its parser, its default and its meaning."""

    name: str
    where: tuple[str, ...]
    parse: Callable[[str], Any]
    default: Any
    meaning: str

    @property
    def values(self) -> str:
        """The values it takes, for the documented table."""
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
    Option(
        "service.url",
        ALL,
        a_url("pulsar", "pulsar+ssl"),
        None,
        "The broker, such as `pulsar://host:6650`. Required, unless `PULSAR_URL` is set.",
    ),
    Option(
        "admin.url",
        ALL,
        a_url("http", "https"),
        None,
        "Its admin API. Default: the usual port on the same host. Required with a token, unless behind `pulsar+ssl://`.",
    ),
    Option("token", ALL, a_text, None, "The token to authenticate with. It is never shown, not even in query plans."),
    Option("topic", ALL, a_topic, None, "The topic to read, or to write all rows to."),
    Option("topics", READS, some_topics, None, "Several topics to read."),
    Option(
        "topicsPattern",
        READS,
        a_pattern,
        None,
        "All topics that match `tenant/namespace/expression`, where `expression` is a regular expression. New topics "
        "join a streaming query.",
    ),
    Option(
        "startingOffsets",
        READS,
        by_topic(an_offset, _ID),
        None,
        "Where to begin, inclusive. Default: `earliest`, for a stream `latest`.",
    ),
    Option(
        "startingTime",
        READS,
        by_topic(a_moment, _TIME),
        None,
        "Begin at the first entry published at this time or later.",
    ),
    Option("endingOffsets", (READ,), by_topic(an_offset, _ID), None, "Where to end, inclusive."),
    Option(
        "endingTime",
        (READ,),
        by_topic(a_moment, _TIME),
        None,
        "End before the first entry published at this time or later.",
    ),
    Option(
        "splitBy",
        READS,
        a_choice("partition", "entries", "keyHash"),
        None,
        "`partition`: one task for each topic partition. `entries`: several tasks share a partition, and each entry is "
        "read by one of them. `keyHash`: each key is read by one task, but every task reads everything to find its "
        "keys. Default: `entries` with `minPartitions`, else `partition`.",
    ),
    Option(
        "minPartitions", READS, a_number(1, 100_000), None, "The minimum number of tasks, if there are as many entries."
    ),
    Option("keyHashRanges", READS, some_ranges, None, "Read only messages whose key slot is in these ranges."),
    Option("keys", READS, some_keys, None, "Read only messages in the key slots of these keys."),
    Option(
        "keyForms",
        READS,
        a_choice("text", "exact"),
        "text",
        "`text` treats every key as text. `exact` asks the admin API about each key that may have been sent as bytes.",
    ),
    Option(
        "filterPushdown",
        (READ,),
        a_flag,
        default=False,
        meaning="Let Spark push down filters on `__keySlot`; needs `spark.sql.python.filterPushdown.enabled`.",
    ),
    Option(
        "readCompacted", READS, a_flag, default=False, meaning="Read the compacted topic: the last message of each key."
    ),
    Option(
        "valueFormat",
        READS,
        a_choice("bytes", "string", "json", "avro"),
        "bytes",
        "`json` and `avro` turn the value's fields into columns, by `valueSchema` or the topic's own schema.",
    ),
    Option(
        "valueSchema",
        READS,
        an_avro_schema,
        None,
        "An Avro schema in JSON that gives the columns, instead of the topic's own.",
    ),
    Option(
        "keyFormat",
        READS,
        a_choice("bytes", "string", "json", "avro"),
        None,
        "The column `__keyPart` has the keys of a KEY_VALUE topic: their bytes, text, or fields.",
    ),
    Option(
        "keySchema",
        READS,
        an_avro_schema,
        None,
        "An Avro schema in JSON that gives the fields of `__keyPart`, instead of the topic's own.",
    ),
    Option(
        "allowDifferentTopicSchemas",
        READS,
        a_flag,
        default=False,
        meaning="Use the first topic's schema for all topics.",
    ),
    Option("columns", READS, some_names, None, "The columns to read; a schema given to `.schema()` does the same."),
    Option(
        "failOnDataLoss",
        READS,
        a_flag,
        default=True,
        meaning="Fail, at each start, if messages to be read were trimmed. `false` warns and continues without them.",
    ),
    Option(
        "acceptDataLoss",
        READS,
        some_names,
        None,
        "Continue without the losses of these names, which the error of `failOnDataLoss` gives; others still fail.",
    ),
    Option(
        "incompleteChunks",
        READS,
        a_choice("fail", "skip"),
        "fail",
        "What to do about a chunked message that is not complete within `pollTimeoutMs`: fail, or leave it out.",
    ),
    Option(
        "cryptoPrivateKeyFile",
        READS,
        a_text,
        None,
        "A file on each executor with the private key, in PEM, that decrypts messages. Without it an encrypted message "
        "fails the read.",
    ),
    Option("pollTimeoutMs", READS, a_number(1000), 60_000, "How many milliseconds a task waits for the next message."),
    Option(
        "waitingForNonExistedTopic",
        (STREAM,),
        a_flag,
        default=False,
        meaning="Wait for a topic that does not exist yet, instead of failing.",
    ),
    Option("maxBatchRows", READS, a_number(1, 1_000_000), 4096, "The maximum number of rows in an Arrow batch."),
    Option(
        "maxBatchBytes",
        READS,
        a_number(1024),
        16 << 20,
        "The maximum payload of an Arrow batch in bytes, estimated from the messages before it.",
    ),
    Option(
        "predefinedSubscription",
        (STREAM,),
        a_text,
        None,
        "The query's durable subscription. If it exists, the query starts at its cursor.",
    ),
    Option(
        "subscriptionPrefix",
        (STREAM,),
        a_text,
        "spark-pulsar",
        "Without `predefinedSubscription`: the beginning of the subscription's name, which is kept in the checkpoint.",
    ),
    Option(
        "maxEntriesPerTrigger",
        (STREAM,),
        a_number(1),
        None,
        "The maximum number of entries in a batch, over all partitions.",
    ),
    Option(
        "maxBytesPerTrigger",
        (STREAM,),
        a_number(1),
        None,
        "The maximum stored bytes of a batch, estimated from the topics' average entries.",
    ),
    Option(
        "minEntriesPerTrigger",
        (STREAM,),
        a_number(1),
        None,
        "Wait for at least this many entries, up to `maxTriggerDelay`.",
    ),
    Option(
        "maxTriggerDelay", (STREAM,), a_duration, 900_000, "The longest wait for `minEntriesPerTrigger`. Default: 15m."
    ),
    Option(
        "guarantee",
        WRITES,
        a_choice("at-least-once", "exactly-once"),
        "at-least-once",
        "`exactly-once` needs deduplication on the topic, and in a batch write a `producerName`.",
    ),
    Option(
        "keyValueEncoding",
        WRITES,
        a_choice("INLINE", "SEPARATED"),
        None,
        "Write keys and values, as Java's `KeyValueSchema` has them: `__key` and `value` are the bytes of each.",
    ),
    Option("producerName", WRITES, a_text, None, "The beginning of the producers' names. Each lane has a producer."),
    Option(
        "unknownProducers",
        WRITES,
        a_choice("fail", "new"),
        "fail",
        "`exactly-once`: fail, or take a producer's name for new, if neither the broker nor the last 10,000 entries of "
        "a longer topic know it.",
    ),
    Option(
        "cryptoPublicKeyFile",
        WRITES,
        a_text,
        None,
        "A file on each executor with the public key, in PEM, that all messages are encrypted with; needs "
        "`encryptionKey`.",
    ),
    Option("encryptionKey", WRITES, a_text, None, "The name of that key, by which consumers know it."),
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
