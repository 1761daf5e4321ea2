"""The command `pulsar-ext doctor`, as an operator or a monitor runs it."""

from __future__ import annotations

import json
import subprocess

import pytest
from acked import send_plain
from chunked import drain, index_of
from mending import namespace_of, pulsar_ext, watching

import pulsar_ext as pulsar
from pulsar_ext.admin import PulsarAdmin

SOON = "--hole-distance 3 --patience-seconds 0.5 --pause-seconds 0"


@pytest.mark.core
def test_exit_status_follows_the_findings(client, admin, broker, topic):
    """The status is 0 without findings, 1 for a held hole, 2 for one without a holder, 3 after an error.

    Settings of the broker that guarantees need are reported, and do not change it.
    """
    send_plain(client, topic, 8)
    consumer = client.subscribe(
        topic, "s", pulsar.ConsumerType.Shared, initial_position=pulsar.InitialPosition.Earliest
    )
    messages = drain(consumer.receive, 8)
    consumer.acknowledge_many([one for one in messages if index_of(one) != 1])
    consumer.flush_acks(confirm=True)
    status, printed, _ = pulsar_ext(broker, f"pulsar-ext doctor {topic} --json {SOON}")
    diagnosis = json.loads(printed)
    assert (status, diagnosis["exit_status"]) == (1, 1)
    assert [(one["kind"], one["evidence"]["entries"]) for one in diagnosis["findings"]] == [("holes", 1)]
    assert diagnosis["broker_version"] == admin.broker_version()
    assert "brokerDeduplicationEnabled" in [one["name"] for one in diagnosis["missing_settings"]]
    consumer.close()
    status, printed, progress = pulsar_ext(broker, f"pulsar-ext doctor {namespace_of(topic)} {SOON}")
    words = "".join(printed.split())
    assert status == 2
    assert "error:holes" in words
    assert f"pulsar-ext skip {topic} s 1 --unit entry --dry-run".replace(" ", "") in words.replace("│", "")
    assert "requests, about" in progress
    assert "brokerDeduplicationEnabled=false:" in words
    status, printed, _ = pulsar_ext(broker, f"pulsar-ext doctor {topic} --pause-seconds 0")
    assert (status, "no problems found" in " ".join(printed.split())) == (0, True)  # a long name wraps the line
    status, printed, error = pulsar_ext(broker, f"pulsar-ext doctor {topic} --subscription other")
    assert (status, printed, "'other'" in error) == (3, "", True)


def test_watch_prints_a_line_each_time(client, broker, topic):
    """A watch prints a line of JSON each time until it is interrupted."""
    send_plain(client, topic, 1)
    with watching(broker, f"pulsar-ext doctor {topic} --every 0.2", stderr=subprocess.DEVNULL) as running:
        assert [json.loads(running.stdout.readline())["exit_status"] for _ in range(2)] == [0, 0]
    assert running.returncode == 130


@pytest.mark.standalone_only("needs a broker that is down, and a cluster never is as a whole")
@pytest.mark.parametrize("command", ["doctor", "look"])
def test_watch_survives_a_restart_of_the_broker(pulsar_own_broker, command):
    """A watch reports that a known broker does not answer, and continues when it is back."""
    broker = pulsar_own_broker()
    with PulsarAdmin(broker.admin_url, **broker.access.admin_options()) as admin:
        admin.create_topic("watched")
    looking = f"pulsar-ext {command} public/default/watched --every 0.2 --pause-seconds 0"
    with watching(broker, looking, stderr=subprocess.PIPE) as running:
        assert json.loads(running.stdout.readline())
        broker.kill()
        error = next(line for line in running.stderr if line.startswith("pulsar-ext: "))
        assert "no answer" in error
        broker.restart()
        # More lines than it can have printed into the pipe before the broker ended.
        assert all(json.loads(running.stdout.readline()) for _ in range(10))
