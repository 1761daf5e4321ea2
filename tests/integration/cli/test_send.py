"""`pulsar-ext send` sends lines and JSON, as `cat` prints it, and with a producer name effectively once."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
from chunked import eventually
from commands import call_command

pytestmark = pytest.mark.standalone_only("runs a command, which takes URLs", ways=("mtls", "cluster"))


@dataclass
class Order:
    """A value."""

    number: int
    at: datetime
    data: bytes


def urls(broker):
    return ("--url", broker.service_url, "--admin-url", broker.admin_url)


@pytest.fixture
def send(broker, monkeypatch):
    """Return a call of the command with lines of text; it returns the status, the result and the errors."""

    def call(topic, text, *arguments):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        status, output, errors = call_command("send", topic, *arguments, "--json", *urls(broker))
        return status, json.loads(output) if output else None, errors

    return call


def values(client, topic):
    with client.read(topic) as reading:
        return [message.data().decode() for message in reading]


@pytest.mark.core
def test_lines_are_values(client, topic, send):
    """Each line is a message, with the given key."""
    assert send(topic, "a\nb\n\nc", "--partition-key", "k")[:2] == (0, {"sent": 4, "already_sent": 0})
    with client.read(topic) as reading:
        assert [(message.data(), message.partition_key()) for message in reading] == [
            (value, "k") for value in (b"a", b"b", b"", b"c")
        ]


@pytest.mark.parametrize("arguments", [(), ("--chunked",)])
def test_what_cat_prints_is_sent_again(client, broker, topic, send, arguments):
    """Values, keys, properties and event times of a topic survive `cat` and `send`, with the target's schema."""
    other = f"{topic}-other"
    orders = [Order(number, datetime(2026, 1, 1, tzinfo=UTC), bytes([number])) for number in (1, 200)]
    with client.create_producer(topic, schema=Order) as producer:
        for order in orders:
            producer.send(order, partition_key="k", properties={"a": "b"}, event_timestamp=7)
        producer.send(None, partition_key="gone")
    client.create_producer(other, schema=Order).close()
    printed = call_command("cat", topic, "--format", "json", *urls(broker))[1]
    assert send(other, printed, "--input-format", "json", *arguments)[:2] == (0, {"sent": 3, "already_sent": 0})
    with client.read(other, schema=Order) as reading:
        found = list(reading)
    assert [message.value() for message in found] == [*orders, None]
    assert [message.partition_key() for message in found] == ["k", "k", "gone"]
    first = found[0]
    assert (first.properties(), first.event_timestamp(), first.inner.int_schema_version()) == ({"a": "b"}, 7, 0)


@pytest.mark.usefixtures("deduplicating")
def test_same_input_is_stored_once(client, topic, send):
    """With a producer name, lines that the topic has are not stored again, also after an invalid one."""
    lines = [json.dumps({"value": str(number)}) for number in range(100)]
    named = ("--producer-name", "p", "--input-format", "json")
    status, result, errors = send(topic, "\n".join([*lines[:50], "{"]), *named)
    assert (status, result) == (1, None)
    assert "line 51: " in errors
    assert "50 messages were sent" in errors
    assert send(topic, "\n".join(lines), *named)[:2] == (0, {"sent": 50, "already_sent": 50})
    assert send(topic, "\n".join(lines), *named)[:2] == (0, {"sent": 0, "already_sent": 100})
    assert values(client, topic) == [str(number) for number in range(100)]


def test_schema_is_checked_first(client, topic, send, tmp_path):
    """A record that does not match is not sent; a missing file and a topic without deduplication raise before."""
    client.create_producer(topic, schema=Order).close()
    status, _, errors = send(topic, '{"value": {"number": 1}}', "--input-format", "json")
    assert (status, "value.at is missing" in errors) == (1, True)
    assert "cannot be read" in send(topic, "", str(tmp_path / "none"))[2]
    assert "does not deduplicate" in send(topic, "{}", "--producer-name", "p")[2]
    assert values(client, topic) == []


def test_ctrl_c_ends_clean(client, admin, broker, topic):
    """The lines before Ctrl-C are sent while the input is open, and the status is 130."""
    admin.create_topic(topic)
    command = [sys.executable, "-c", "from pulsar_ext.cli import main; main()", "send", topic, *urls(broker)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdin.write(b"first\nsecond\n")
        process.stdin.flush()
        assert eventually(lambda: values(client, topic) == ["first", "second"], 60)
        process.send_signal(signal.SIGINT)
        process.wait()
        errors = process.stderr.read()
    assert (process.returncode, b"Traceback" in errors) == (130, False)
