"""Write the comparison of Java's client with both Python clients: `python docs/draw_parity.py` writes docs/parity.md.

A row that says yes names the tests that prove it. If a named test does not exist, the program fails and writes nothing.
"""

from __future__ import annotations

import ast
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "tests"
PAGE = ROOT / "docs" / "parity.md"
HEAD = """# What the Java client has

For those who know Java's client: its features compared with `pulsar-client` 3.13 and this library. Each yes of this
library links to the tests that prove it. `python docs/draw_parity.py` has the rows, and writes this page.
"""
TABLE = "| what | Java | Python official | pulsar_ext |\n|---|---|---|---|\n"
MANY, SOME = "topics_reader/test_topics_reader", "receive/test_seek_of_some"
SETTINGS, COUNTED = "client/test_consumer_settings", "client/test_statistics"
SERVICE = "faststream/test_faststream"
LETTERS, SEEN = "redelivery/test_retry_letters", "intercept/test_intercepted"


class Row(NamedTuple):
    """A feature, and each client's support of it; a row without tests is unsupported in this library."""

    what: str
    java: str
    official: str
    ours: str
    tests: tuple[str, ...] = ()


def row(what: str, java: str, official: str, ours: str, *tests: str) -> Row:
    """Return a row."""
    return Row(what, java, official, ours, tests)


CHAPTERS = {
    "Reading and receiving": [
        row("readers of several topics", "`topics(…)`", "no", "`create_reader([…], …)`",
            f"{MANY}::test_each_message_is_read_once_and_in_order",
            "topics_reader/test_faults::test_reader_survives_killed_broker",
            "topics_reader/test_faults::test_reader_survives_unloads_and_cuts"),
        row("readers of a pattern", "no", "no", "`create_reader(re.compile(…), …)`",
            f"{MANY}::test_pattern_reads_new_topics"),
        row("a start for each topic", "no", "no", "`create_reader([…], {topic: id})`",
            f"{MANY}::test_starts_at_latest_or_at_id_of_each_topic"),
        row("partitions that are added are read", "yes", "yes", "yes",
            f"{MANY}::test_added_partitions_are_read"),
        row("readers of key ranges", "`keyHashRange`, by whole batches", "no",
            "`key_hash_ranges`, by each message's key",
            "key_shared/test_reader::test_tiling_readers_share_the_topic",
            f"{MANY}::test_readers_of_key_ranges_share_several_topics"),
        row("seek on some of several topics", "`seek(Function)`, `seek(TopicMessageId)`", "no",
            "`seek({topic: id or time})`", f"{SOME}::test_seek_moves_some_topics_only",
            f"{SOME}::test_seek_to_times_and_to_the_end", f"{MANY}::test_seek_of_one_topic_keeps_the_others",
            "topics_reader/test_faults::test_seeks_of_one_topic_during_cuts"),
        row("ids of the last messages", "`getLastMessageIds`", "of one topic", "`get_last_message_ids()`",
            f"{SOME}::test_last_message_ids_of_several_topics"),
        row("the end of a terminated topic", "`hasReachedEndOfTopic`, `reachedEndOfTopic`", "no",
            "`has_reached_end_of_topic()`, over the admin API; no event",
            f"{COUNTED}::test_end_of_a_terminated_topic_is_reached"),
        row("the interval in which a pattern discovers topics", "`patternAutoDiscoveryPeriod`", "accepted, and ignored",
            "`pattern_auto_discovery_period`",
            f"{SETTINGS}::test_pattern_discovers_topics_in_its_period"),
        row("table views", "`TableView`", "crashes on many messages", "`get`, `keys`, `values`, `items`, `listen`",
            "client/test_table_view::test_view_has_the_methods_of_a_dict",
            "client/test_table_view::test_view_of_many_messages_shows_every_key"),
    ],
    "Consumers": [
        row("pause and resume", "`pause`, `resume`", "of listeners", "`pause()`, `resume()`, of receives and loops too",
            "receive/test_pause::test_paused_consumer_delivers_nothing_until_resumed",
            "receive/test_pause::test_pause_outlasts_a_seek"),
        row("a handler for each message, clean shutdown", "no", "no", "`process(handler, concurrency=…, on_error=…)`",
            "process/test_process::test_each_message_is_handled_and_acknowledged",
            "process/test_process::test_failed_message_is_redelivered",
            "process/test_process_faults::test_ended_workers_lose_nothing",
            "asyncio/test_waits::test_cancelled_process_redelivers_its_messages"),
        row("request and reply", "no", "no", "`requester()`, `replier()`",
            "request/test_request::test_each_request_gets_its_own_reply",
            "request/test_request_faults::test_requests_are_answered_after_a_broker_crash"),
        row("services with FastStream", "no", "no", "`pulsar_ext.faststream.PulsarBroker`",
            f"{SERVICE}::test_model_arrives_as_it_was_published",
            "faststream/test_acknowledgement_outcomes::test_ack_policy_applies_when_a_handler_raises",
            "faststream/test_faults::test_stops_during_handlers_lose_nothing",
            "faststream/test_faults::test_killed_broker_loses_nothing"),
        row("retry letters", "`reconsumeLater`", "no", "`reconsume_later()`",
            f"{LETTERS}::test_message_becomes_dead_letter_after_its_retries",
            "redelivery/test_retry_java::test_java_and_python_read_each_others_letters"),
        row("backoff of redelivery", "`RedeliveryBackoff`", "no", "`MultiplierRedeliveryBackoff`, or a function",
            "redelivery/test_backoff::test_nack_backoff_delays_redelivery"),
        row("interceptors", "yes", "no", "yes, of producers, consumers and readers",
            f"{SEEN}::test_interceptors_change_received_messages", f"{SEEN}::test_interceptors_change_sent_messages",
            f"{SEEN}::test_reader_gets_changed_messages"),
        row("acknowledgements in groups", "`acknowledgmentGroupTime`", "fixed at 100 ms", "`ack_group_time_ms`",
            "ack/test_grouping::test_group_is_sent_by_time_or_size"),
        row("receipts of acknowledgements", "`isAckReceiptEnabled`", "no", "`flush_acks(confirm=True)`",
            "ack/test_confirm::test_confirmed_flush_is_on_the_cursor"),
        row("one message acknowledged by its id", "by a consumer", "by a consumer",
            "`client.acknowledge(topic, subscription, id)`",
            "ack/test_by_id::test_message_of_another_consumer", "ack/test_by_id::test_delayed_message_is_cancelled"),
        row("priority levels", "`priorityLevel`", "no", "`priority_level`",
            f"{SETTINGS}::test_lowest_priority_level_gets_messages_first"),
        row("subscription properties", "`subscriptionProperties`", "no", "`subscription_properties`; tried on Linux",
            f"{SETTINGS}::test_subscription_properties_are_set"),
        row("events of the active Failover consumer", "`ConsumerEventListener`", "no",
            "`consumer_event_listener`; tried on Linux",
            f"{SETTINGS}::test_active_consumer_is_reported",
            f"{SETTINGS}::test_seek_and_cut_report_no_change"),
        row("statistics", "`getStats`, counted by the client", "no", "`stats()`, counted by the broker",
            f"{COUNTED}::test_consumer_stats_match_the_broker", f"{COUNTED}::test_client_stats_list_open_handles"),
        row("a memory limit for consumers", "`memoryLimit` with `autoScaledReceiverQueueSizeEnabled`", "no",
            "no: the C++ client limits pending messages of producers, and no queue of a consumer. "
            "`receiver_queue_size` bounds messages, not bytes"),
        row("an earlier end of incomplete chunked messages", "`expireTimeOfIncompleteChunkedMessage`", "no",
            "no: its chunks are acknowledged once no consumer can receive it"),
    ],
    "Schemas": [
        row("classes as schemas", "`Schema.AVRO(C.class)`, `Schema.JSON(C.class)`", "`Record` classes",
            "dataclasses and pydantic models", "schema/test_models::test_model_values_are_received_as_sent",
            "schema/test_java::test_java_and_python_read_each_other"),
        row("reading by the writer's version", "yes", "Avro, if the broker answers", "Avro, or it raises",
            "schema/test_models::test_messages_are_read_by_their_schema_version"),
        row("keys and values", "`Schema.KeyValue`", "no", "`KeyValueSchema`; sent with parts in JSON, text, bytes",
            "schema/test_key_values::test_key_value_round_trip"),
        row("any schema", "`Schema.AUTO_CONSUME()`", "no", "`AutoConsumeSchema()`",
            "schema/test_key_values::test_auto_consume_reads_any_schema"),
        row("differences from the topic's schema", "in the broker's words", "in the broker's words",
            "`SchemaMismatch.differences`",
            "schema/test_models::test_rejected_producer_raises_with_differences"),
    ],
    "Producers": [
        row("hashing schemes of keys", "`hashingScheme`", "Boost's only", "`hashing_scheme`",
            "produce/test_hashing_scheme::test_keys_are_routed_as_in_java"),
        row("deduplicated batches", "yes, except for a resumed producer", "loses messages", "`deduplication=True`",
            "dedup/test_dedup::test_resumed_producer_repeats_and_loses_nothing"),
        row("statistics", "`getStats`, counted by the client", "no", "`stats()`: rates, counted by the broker",
            f"{COUNTED}::test_producer_stats_match_the_broker"),
        row("transactions", "yes", "no", "no: the C++ client does not support them"),
        row("a chunk's size", "`chunkMaxMessageSize`", "no", "no: the C++ client takes the broker's maximum size"),
    ],
    "Messages and schemas": [
        row("ids of chunked messages", "`ChunkMessageId`", "lost when stored", "`ChunkMessageId`",
            "chunks/test_ids::test_every_method_returns_the_whole_id",
            "ids/test_java_interop::test_reads_java_ids"),
        row("seek to a chunked message, by any id of it", "`seek(ChunkMessageId)`", "not by stored numbers",
            "to it if inclusive, else after it",
            "chunks/test_ids::test_inclusive_seek_delivers_the_whole_message",
            "chunks/test_ids::test_exclusive_seek_continues_after_the_message"),
        row("the cluster a message was replicated from", "`getReplicatedFrom`", "no", "`replicated_from()`",
            "testing/test_replication::test_message_has_its_origin_cluster"),
        row("the index of a message", "`getIndex`", "no", "`index()`",
            "client/test_message_index::test_index_counts_messages"),
        row("the schema a message was written with", "yes", "a wrong one without the broker", "yes, or an error",
            "client/test_schema_versions::test_message_is_decoded_with_the_writer_schema"),
    ],
}  # fmt: skip


@cache
def names_in(file: Path) -> frozenset[str]:
    """Return the names of the tests in a file; an empty set if the file does not exist."""
    if not file.is_file():
        return frozenset()
    nodes = ast.walk(ast.parse(file.read_text()))
    return frozenset(node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def missing() -> list[str]:
    """Return the named tests that do not exist."""
    named = [test for rows in CHAPTERS.values() for one in rows for test in one.tests]
    return [test for test in named if test.partition("::")[2] not in names_in(_file_of(test))]


def page() -> str:
    """Return the page."""
    text = HEAD
    for chapter, rows in CHAPTERS.items():
        text += f"\n## {chapter}\n\n{TABLE}"
        for one in rows:
            proofs = ", ".join(_link(test, number) for number, test in enumerate(one.tests, 1))
            text += f"| {one.what} | {one.java} | {one.official} | {one.ours}{proofs and f' ({proofs})'} |\n"
    return text


def _file_of(test: str) -> Path:
    return TESTS / "integration" / f"{test.partition('::')[0]}.py"


def _link(test: str, number: int) -> str:
    path = _file_of(test).relative_to(ROOT).as_posix()
    return f'[{number}](../{path} "{test.partition("::")[2]}")'


def main() -> int:
    """Write the page; return 1 if a named test does not exist."""
    if unknown := missing():
        sys.stderr.write("".join(f"test not found: {test}\n" for test in unknown))
        return 1
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
