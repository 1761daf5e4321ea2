"""The command `opentelemetry-instrument` traces and counts an unchanged program, on a real broker."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from reach import Reach

HANG_SECONDS = 120
PAGE = Path(__file__).parents[3] / "docs/opentelemetry.md"
PROGRAM = """
import sys
from reach import Reach
import pulsar_ext as pulsar, pulsar_ext.asyncio, asyncio

reach, topic = Reach.unpack(sys.argv[1]), sys.argv[2]
client = pulsar.Client(reach.service_url, **reach.options())
consumer = client.subscribe(topic, "s")
client.create_producer(topic).send(b"data")
consumer.acknowledge(consumer.receive(20_000))
client.close()

async def main():
    async with pulsar.asyncio.Client(reach.service_url, **reach.options()) as awaited:
        producer = await awaited.create_producer(topic)
        await producer.send(b"more")

asyncio.run(main())
"""
INSTALLED = entry_points(group="opentelemetry_instrumentor", name="pulsar_ext")


def run_instrumented(broker, topic, directory):
    """Run the program under the command of docs/opentelemetry.md, and return the objects printed by its exporters."""
    script = directory / "program.py"
    script.write_text(PROGRAM)
    run = "from opentelemetry.instrumentation.auto_instrumentation import run; run()"
    exporters = re.findall(r"^opentelemetry-instrument (.*) python program.py$", PAGE.read_text(), re.MULTILINE)[
        0
    ].split()
    path = os.pathsep.join(filter(None, (str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, "-c", run, *exporters, sys.executable, str(script), Reach.of(broker).pack(), topic],
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stderr
    text, decode, printed = done.stdout, json.JSONDecoder().raw_decode, []
    while "{" in text:
        text = text[text.index("{") :]
        one, end = decode(text)
        printed.append(one)
        text = text[end:]
    return printed


@pytest.mark.core
@pytest.mark.skipif(not INSTALLED, reason="the entry point needs the installed package")
def test_command_instruments_program(broker, topic, tmp_path):
    """Spans of both kinds of clients, with sent and received message in one trace, and metrics are printed."""
    printed = run_instrumented(broker, topic, tmp_path)
    spans = [one for one in printed if "context" in one]
    assert [one["name"] for one in spans] == [f"{what} {topic}" for what in ("send", "ack", "process", "send")]
    assert len({one["context"]["trace_id"] for one in spans[:3]}) == 1
    [metrics] = [one for one in printed if "resource_metrics" in one]
    scopes = [scope for one in metrics["resource_metrics"] for scope in one["scope_metrics"]]
    counts = {metric["name"]: metric["data"]["data_points"] for scope in scopes for metric in scope["metrics"]}
    assert sum(one["value"] for one in counts["messaging.client.sent.messages"]) == 2
    assert sum(one["value"] for one in counts["messaging.client.consumed.messages"]) == 1


@pytest.mark.skipif(not INSTALLED, reason="the entry point needs the installed package")
def test_environment_excludes_package(broker, topic, tmp_path, monkeypatch):
    """A program whose environment excludes this package runs without instrumentation."""
    monkeypatch.setenv("OTEL_PYTHON_DISABLED_INSTRUMENTATIONS", "pulsar_ext")
    assert [one for one in run_instrumented(broker, topic, tmp_path) if "context" in one] == []
