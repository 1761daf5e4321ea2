"""Parsing and checking of the options of the Spark source."""

import pickle

import pytest

from pulsar_ext.errors import InvalidUse
from pulsar_ext.key_shared.hash_ranges import KeyHashRanges
from pulsar_ext.key_shared.hashing import key_slot
from pulsar_ext.spark.offsets import Offset
from pulsar_ext.spark.options import (
    READ,
    SINK,
    STREAM,
    WRITE,
    check_options,
    parse_options,
    with_environment,
)

URL = {"service.url": "pulsar://localhost:6650"}
TOPIC = {**URL, "topic": "t"}


def assert_invalid(options, where, *words):
    with pytest.raises(InvalidUse) as caught:
        parse_options(options, where)
    for word in words:
        assert word in str(caught.value)


def test_option_names_are_case_insensitive():
    """Options are recognized in lower case, as Spark passes them, and in any other case."""
    settings = parse_options({**URL, "TOPIC": "t", "minpartitions": "3"}, READ)
    assert settings["topic"] == "t"
    assert settings["minPartitions"] == 3


def test_unknown_option_error_suggests_names():
    """A misspelt option raises for every operation, with the nearest name and all names."""
    for where in (READ, STREAM, None):
        assert_invalid(
            {**TOPIC, "startingoffset": "earliest"}, where, "startingOffsets", "Did you mean", "pulsar.client."
        )


@pytest.mark.parametrize(
    ("options", "where", "words"),
    [
        ({}, READ, ["service.url"]),
        (URL, READ, ["topic, topics or topicsPattern"]),
        ({**TOPIC, "topics": "a,b"}, READ, ["topic and topics", "conflict"]),
        ({**TOPIC, "startingOffsets": "earliest", "startingTime": "0"}, READ, ["conflict"]),
        ({**TOPIC, "keys": "a", "keyHashRanges": "0-1"}, READ, ["conflict"]),
        ({**TOPIC, "splitBy": "rows"}, READ, ["partition, entries, keyHash"]),
        ({**TOPIC, "splitBy": "entries"}, READ, ["minPartitions"]),
        ({**TOPIC, "splitBy": "partition", "minPartitions": "2"}, READ, ["entries"]),
        ({**TOPIC, "readCompacted": "true", "minPartitions": "2"}, READ, ["readCompacted"]),
        ({**TOPIC, "minPartitions": "0"}, READ, ["from 1"]),
        ({**TOPIC, "failOnDataLoss": "maybe"}, READ, ["true, false"]),
        ({**TOPIC, "startingOffsets": "first"}, READ, ["earliest", "ledger:entry"]),
        ({**TOPIC, "startingOffsets": "{"}, READ, ["JSON"]),
        ({**TOPIC, "startingOffsets": '{"ledger": 7}'}, READ, ["is not an offset"]),
        ({**TOPIC, "startingTime": "yesterday"}, READ, ["2026-01-31"]),
        ({**TOPIC, "keyHashRanges": "5-3"}, READ, ["range"]),
        ({**TOPIC, "valueSchema": "{}"}, READ, ["valueFormat"]),
        ({**TOPIC, "endingOffsets": "latest"}, STREAM, ["does not apply", "batch read"]),
        ({**TOPIC, "maxTriggerDelay": "1m"}, STREAM, ["minEntriesPerTrigger"]),
        ({**TOPIC, "minEntriesPerTrigger": "5", "maxEntriesPerTrigger": "2"}, STREAM, ["more than"]),
        ({**TOPIC, "maxEntriesPerTrigger": "5"}, READ, ["streaming read"]),
        ({**TOPIC, "pulsar.reader.queue": "5"}, READ, ["receiverQueueSize"]),
        ({**TOPIC, "pulsar.client.operationTimeoutSeconds": "soon"}, READ, ["whole number"]),
        ({**TOPIC, "pulsar.client.operationTimeoutSeconds": "0"}, READ, ["from 1"]),
        ({**TOPIC, "pulsar.client.ioThreads": "3000000000"}, READ, ["from 0 to 2147483647"]),
        ({**TOPIC, "pulsar.reader.receiverQueueSize": "0"}, READ, ["from 1"]),
        ({**TOPIC, "pulsar.producer.batchingMaxMessages": "1"}, WRITE, ["from 2"]),
        ({**TOPIC, "guarantee": "exactly-once"}, WRITE, ["producerName"]),
        ({**TOPIC, "guarantee": "best"}, SINK, ["at-least-once, exactly-once"]),
        ({**TOPIC, "pulsar.producer.compressionType": "rar"}, WRITE, ["LZ4"]),
        ({**URL, "path": "t"}, READ, ["topic"]),
        ({"service.url": "localhost:6650", "topic": "t"}, READ, ["pulsar://", "pulsar+ssl://"]),
        ({**TOPIC, "admin.url": "localhost:8080"}, READ, ["http://"]),
        ({**URL, "topic": "a/b"}, READ, ["a/b"]),
        ({**URL, "topics": "a,b/c"}, READ, ["b/c"]),
        ({**TOPIC, "valueFormat": "json", "valueSchema": "{"}, READ, ["Avro schema in JSON"]),
        ({**TOPIC, "valueFormat": "json", "valueSchema": "[]"}, READ, ["fields"]),
        ({**TOPIC, "predefinedSubscription": "s", "subscriptionPrefix": "p"}, STREAM, ["conflict"]),
        ({**TOPIC, "pulsar.producer.batchingEnabled": "true"}, READ, ["does not apply", "batch write"]),
        ({**TOPIC, "pulsar.reader.readerName": "r"}, WRITE, ["does not apply", "batch read"]),
        (
            {**TOPIC, "pulsar.producer.chunkingEnabled": "true", "pulsar.producer.batchingEnabled": "true"},
            WRITE,
            ["conflict"],
        ),
    ],
)
def test_invalid_options_raise_with_allowed_values(options, where, words):
    """Invalid or conflicting options raise an error that names the allowed values."""
    assert_invalid(options, where, *words)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({**TOPIC, "startingoffset": "earliest"}, ["startingOffsets"]),
        ({**TOPIC, "splitBy": "entries"}, ["needs minPartitions"]),
        ({**TOPIC, "minEntriesPerTrigger": "5", "maxEntriesPerTrigger": "2"}, ["more than"]),
        ({**TOPIC, "splitBy": "partition", "guarantee": "exactly-once"}, ["does not apply"]),
        ({**TOPIC, "endingOffsets": "latest", "maxEntriesPerTrigger": "2"}, ["does not apply"]),
        ({**URL, "startingOffsets": "earliest"}, ["topic, topics or topicsPattern"]),
    ],
)
def test_options_that_fit_no_operation_raise_early(options, words):
    """Options that fit no operation raise before it is known; the error is that of the best-fitting operation."""
    with pytest.raises(InvalidUse) as caught:
        check_options(options)
    for word in words:
        assert word in str(caught.value)


def test_options_that_fit_an_operation_pass():
    """Options of each operation pass while the operation is unknown."""
    check_options({**TOPIC, "endingOffsets": "latest"})
    check_options({**TOPIC, "maxEntriesPerTrigger": "2", "pulsar.reader.receiverQueueSize": "5"})
    check_options({**URL, "guarantee": "exactly-once", "producerName": "p"})
    check_options({**TOPIC, "guarantee": "exactly-once", "checkpointLocation": "/tmp/c"})


def test_option_values_are_parsed():
    """Each kind of value is parsed."""
    settings = parse_options(
        {
            **TOPIC,
            "startingOffsets": '{"a": "5:7:-1:2", "b": "earliest", "c": {"ledger": 1, "entry": 2}}',
            "keys": '["x", "y"]',
            "pulsar.client.operationTimeoutSeconds": "7",
            "pulsar.client.tls_allow_insecure_connection": "true",
        },
        READ,
    )
    assert settings["startingOffsets"] == {"a": Offset(5, 7, 2), "b": "earliest", "c": Offset(1, 2)}
    one = parse_options({**TOPIC, "startingOffsets": '{"ledger": 7, "entry": 49, "batch": -1}'}, READ)
    assert one["startingOffsets"] == Offset(7, 49)
    named = parse_options({**TOPIC, "startingOffsets": '{"ledger": "latest", "entry": "5:7"}'}, READ)
    assert named["startingOffsets"] == {"ledger": "latest", "entry": Offset(5, 7)}
    assert settings["keys"].contains(key_slot("x"))
    assert settings["keys"].slots == 2
    assert settings.passed["pulsar.client."] == {"operation_timeout_seconds": 7, "tls_allow_insecure_connection": True}
    ranges = parse_options({**TOPIC, "keyHashRanges": "0-10,20-30"}, READ)["keyHashRanges"]
    assert ranges == KeyHashRanges.parse("0-10,20-30")
    assert parse_options({**TOPIC, "startingTime": "1970-01-01T00:00:02Z"}, READ)["startingTime"] == 2000
    stream = parse_options({**TOPIC, "minEntriesPerTrigger": "1", "maxTriggerDelay": "2m"}, STREAM)
    assert stream["maxTriggerDelay"] == 120_000


def test_chunked_message_id_starts_at_its_first_chunk():
    """The id of a chunked message, as text or bytes, becomes the offset of its first chunk."""
    assert parse_options({**TOPIC, "startingOffsets": "5:3:-1;5:9:-1"}, READ)["startingOffsets"] == Offset(5, 3)
    stored = "080510073a0408051005"
    assert parse_options({**TOPIC, "startingOffsets": stored}, READ)["startingOffsets"] == Offset(5, 5)


def test_settings_survive_pickling_and_hide_the_token():
    """Settings can be pickled for tasks, and their repr in plans hides the token."""
    settings = parse_options({**TOPIC, "token": "s3cret", "startingOffsets": '{"a": "1:1"}'}, READ)
    again = pickle.loads(pickle.dumps(settings))
    assert again["token"] == "s3cret"
    assert again["startingOffsets"] == {"a": Offset(1, 1)}
    assert "s3cret" not in repr(settings) + repr(again)
    assert_invalid({**TOPIC, "token": " "}, READ, "token")


ENVIRONMENT = {"PULSAR_URL": "pulsar://e:1", "PULSAR_ADMIN_URL": "http://e:2", "PULSAR_TOKEN": "secret"}


def test_environment_provides_broker_urls():
    """Without a broker in the options, the environment's variables are used for options that are not set."""
    settings = parse_options(with_environment({"Token": "own", "topic": "t"}, ENVIRONMENT), READ)
    assert (settings["service.url"], settings["admin.url"], settings["token"]) == ("pulsar://e:1", "http://e:2", "own")


def test_environment_token_stays_with_its_broker():
    """The environment is ignored if the options name a broker; without any broker, the error names the variable."""
    assert with_environment({"Service.URL": "pulsar://o:1"}, ENVIRONMENT) == {"Service.URL": "pulsar://o:1"}
    assert_invalid(with_environment({"topic": "t"}, {"PULSAR_URL": ""}), READ, "PULSAR_URL")
