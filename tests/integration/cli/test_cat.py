"""`pulsar-ext cat` prints the messages of a topic in each form, and follows it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import dataclass

import pytest
from commands import call_command

from pulsar_ext.schema import JsonSchema


@dataclass
class Order:
    """A value."""

    number: int


pytestmark = pytest.mark.standalone_only("runs a command, which takes URLs", ways=("mtls", "cluster"))


def cat(broker, topic, *arguments):
    """Return the status, the output and the errors of the command."""
    urls = ("--url", broker.service_url, "--admin-url", broker.admin_url)
    return call_command("cat", topic, *arguments, *urls)


@pytest.fixture
def visits(client, topic):
    """Return the topic with ten messages in a batch."""
    producer = client.create_producer(topic, batching_enabled=True)
    names = [f"k{number % 3}" for number in range(10)]
    producer.send_many([b"visit %d" % number for number in range(10)], partition_keys=names)
    return topic


@pytest.mark.core
def test_messages_are_printed_in_each_form(broker, visits):
    """A pipe gets lines of JSON; a table, payloads and hexadecimal payloads are printed on request."""
    status, output, _ = cat(broker, visits, "--last", "2")
    records = [json.loads(line) for line in output.splitlines()]
    assert (status, [one["value"] for one in records]) == (0, ["visit 8", "visit 9"])
    assert (records[0]["key"], records[0]["topic"], records[0]["id"].endswith(":8")) == ("k2", visits, True)
    assert cat(broker, visits, "--key", "k1", "--where", "[5-9]", "--format", "raw")[1] == "visit 7\n"
    assert cat(broker, visits, "--from", records[1]["id"], "--format", "hex")[1] == b"visit 9".hex(" ") + "\n"
    assert "visit 0" in cat(broker, visits, "--format", "table")[1]


def test_values_are_decoded_by_the_schema(broker, client, topic):
    """A record is printed as JSON, and its bytes with `--schema raw`."""
    client.create_producer(topic, schema=JsonSchema(Order)).send(Order(3))
    assert json.loads(cat(broker, topic)[1])["value"] == {"number": 3}
    assert "number" in json.loads(cat(broker, topic, "--schema", "raw")[1])["value"]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("--from", "yesterday"), "is not a place"),
        (("--where", "["), "is not a regular expression"),
        (("--property", "a"), "NAME=VALUE"),
        (("--follow", "--to", "5:7"), "has no end"),
        (("--last", "0"), "last must be an int >= 1"),
    ],
)
def test_invalid_arguments_are_reported(broker, visits, arguments, error):
    """An invalid argument ends the command with one line."""
    status, output, errors = cat(broker, visits, *arguments)
    assert (status, output, len(errors.splitlines())) == (1, "", 1)
    assert error in errors


def test_following_ends_with_ctrl_c(broker, client, visits):
    """`--follow` prints stored and new messages, and Ctrl-C ends it silently."""
    urls = ["--url", broker.service_url, "--admin-url", broker.admin_url]
    command = [sys.executable, "-c", "from pulsar_ext.cli import main; main()", "cat", visits, "--last", "1"]
    with subprocess.Popen([*command, "--follow", *urls], stdout=subprocess.PIPE, text=True) as process:
        assert json.loads(process.stdout.readline())["value"] == "visit 9"
        client.create_producer(visits).send(b"new")
        assert json.loads(process.stdout.readline())["value"] == "new"
        process.send_signal(signal.SIGINT)
        assert process.stdout.read() == ""
    assert process.returncode == 130
