"""Extraction of the cause from an error of Spark."""

import pytest

from pulsar_ext.spark.errors import reason

_OF_A_STREAM = """[STREAM_FAILED] Query [id = 1] terminated: [PYTHON_ERROR] Failed: Traceback (most recent call last):
  File "stream.py", line 140, in prepareForTriggerAvailableNow
    for topic, stats in stats_of(admin, topics_of(admin, self._settings)).items()
pulsar_ext.errors.NoSuchTopic: Topic sales does not exist. Create it first.
 SQLSTATE: 38000 SQLSTATE: XXKST
=== Streaming Query ===
Current Committed Offsets: {}"""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (_OF_A_STREAM, "Topic sales does not exist. Create it first."),
        ("Traceback:\n_pulsar.Timeout: Pulsar error: Timeout\n\tat org.Java", "Pulsar error: Timeout"),
        (
            "[PATH_NOT_FOUND] Path does not exist: file:/a. SQLSTATE: 42K03",
            "[PATH_NOT_FOUND] Path does not exist: file:/a.",
        ),
        ("An error occurred while calling o5.count.\n: java.io.Error: full\n\tat org", "java.io.Error: full"),
        ("[JAVA_GATEWAY_EXITED] Java gateway process exited.", "Spark needs Java 17 or newer"),
    ],
    ids=["stream", "client", "path", "call", "java"],
)
def test_spark_error_is_reduced_to_one_line(text, line):
    """The cause of an error of a worker or of Spark is one line, without tracebacks of Python and Java."""
    assert reason(text).startswith(line)
    assert "\n" not in reason(text)
