"""The outbox example: killed at any point and restarted, it publishes every row once."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

import pulsar_ext as pulsar

pytestmark = pytest.mark.standalone_only("runs an example, which takes a URL, and no certificates", ways=("mtls",))

PROGRAM = Path(__file__).parents[3] / "examples" / "outbox.py"
ROWS, KILLS = 60_000, 4


@pytest.mark.parametrize("kind", ["table", "file"])
def test_killed_outbox_publishes_every_row_once(
    kind, tmp_path, pulsar_broker_factory, pulsar_client_factory, pulsar_topic_factory
):
    """The program is killed a few times while it runs, and then completes."""
    broker = pulsar_broker_factory("dedup")
    client, topic = pulsar_client_factory(broker), pulsar_topic_factory(broker=broker)
    source = tmp_path / "outbox"
    if kind == "table":
        with sqlite3.connect(source) as database:
            database.execute("CREATE TABLE outbox(id INTEGER PRIMARY KEY, body TEXT)")
            database.executemany("INSERT INTO outbox VALUES (?, ?)", ((3 * n, str(n)) for n in range(ROWS)))
    else:
        source.write_text("".join(f"{n}\n" for n in range(ROWS)) + "a line that has no end yet")
    command = [sys.executable, PROGRAM, broker.service_url, topic, "--admin", broker.admin_url, "--name", "o"]
    command += [f"--{kind}", source]
    dice = random.Random(7)
    for _ in range(KILLS):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(dice.uniform(0.5, 1.5))
        process.send_signal(signal.SIGKILL)
        process.wait()
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, env=os.environ)
    assert done.returncode == 0, done.stderr
    assert f"the last one is {3 * (ROWS - 1) if kind == 'table' else ROWS - 1}" in done.stdout
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    found = [int(reader.read_next(10_000).data()) for _ in range(ROWS)]
    assert found == list(range(ROWS))
    assert not reader.has_message_available()
