"""A trace spans a Java program: Python sends, Java receives and sends, Python receives."""

from __future__ import annotations

import pytest
from java_peer import run_java
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from reach import Reach

import pulsar_ext.otel
from pulsar_ext.testing.backend import process_problem

BOTH_CLIENTS = True

PROBLEM = process_problem()
pytestmark = pytest.mark.skipif(PROBLEM is not None, reason=f"the Java client cannot be run here: {PROBLEM}")

ROOT = "0" * 16
"""Java's id for a missing parent."""


def passed_on_by_java(broker, topic, other):
    """Forward one message by the Java program, and return its spans: name, trace, own id, parent's id."""
    lines = run_java("PassOn", Reach.of(broker).java_settings(), topic, other)
    return [tuple(line.split("\t")[1:]) for line in lines if line.startswith("SPAN\t")]


def of_python(span):
    """Return a Python span in the format of the Java program."""
    own, parent = span.get_span_context(), span.parent
    return (
        span.name,
        f"{own.trace_id:032x}",
        f"{own.span_id:016x}",
        ROOT if parent is None else f"{parent.span_id:016x}",
    )


def test_trace_through_java_and_back(client, broker, topic):
    """All spans of the three programs are one tree, whose only root is the first send."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    pulsar_ext.otel.instrument(getattr(client, "awaited", client), tracer_provider=provider)
    other = f"{topic}-other"
    consumer = client.subscribe(other, "python")
    client.create_producer(topic).send(b"data", properties={"own": "kept"})
    java = passed_on_by_java(broker, topic, other)
    consumer.acknowledge(consumer.receive(20_000))
    spans = {own: (name, parent) for name, _, own, parent in [*map(of_python, exporter.get_finished_spans()), *java]}
    [last] = [own for own, (name, _) in spans.items() if name == f"ack {other}"]
    path = []
    while last != ROOT:
        name, last = spans[last]
        path.append(name)
    # Java's client 4.2.4 begins no span for a send: apache/pulsar 25584.
    assert [name for name in path if name != f"send {other}"] == [
        f"ack {other}",
        f"process {other}",
        f"process {topic}",
        f"send {topic}",
    ]
    assert [name for name, parent in spans.values() if parent == ROOT] == [f"send {topic}"]
