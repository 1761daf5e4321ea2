"""A send callback that raises prevents the other callbacks of its batch, or ends the process."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from ._support import Client, Counts, Env, numbered


def send(pulsar: Client, env: Env, topic: str, labels: list[str], reports: str) -> None:
    """Send one batch; each callback notes its result, and that of the first message then raises."""
    # Written to a file line by line, because the process may end before it can return anything.
    with Path(reports).open("a", buffering=1) as notes:

        def callback(label: str) -> Callable[[object, object], None]:
            def done(_result: object, _message_id: object) -> None:
                notes.write(f"{label}\n")
                if label == labels[0]:
                    raise RuntimeError("a mistake in the program's callback")

            return done

        client = env.client(pulsar)
        producer = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=1000)
        for label in labels:
            producer.send_async(label.encode(), callback(label))
        producer.flush()
        client.close()


def run(pulsar: Client, env: Env) -> Counts:
    """Send in a separate process, which may hang or crash, and count the results passed to the callbacks."""
    topic, sent = env.topic(), numbered(10)
    with tempfile.TemporaryDirectory(prefix="pulsar-ext-") as directory:
        reports = Path(directory, "reports")
        reports.touch()
        outcome = env.run_isolated(pulsar, send, topic, sent, str(reports))
        reported = reports.read_text().splitlines()
    note = "" if len(reported) == len(sent) else "results never reported"
    return Counts.of(sent, reported, ended=outcome.ended, note=note)
