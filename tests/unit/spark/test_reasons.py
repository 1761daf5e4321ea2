"""The line of an error of Spark that says what went wrong."""

import pytest

from pulsar_ext.spark.errors import reason

_OF_A_STREAM = """[STREAM_FAILED] Query [id = 1] terminated: [PYTHON_ERROR] Failed: Traceback (most recent call last):
  File "stream.py", line 140, in prepareForTriggerAvailableNow
    for topic, stats in stats_of(admin, topics_of(admin, self._settings)).items()
pulsar_ext.errors.NoSuchTopic: There is no topic sales. Create it first.
 SQLSTATE: 38000 SQLSTATE: XXKST
=== Streaming Query ===
Current Committed Offsets: {}"""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (_OF_A_STREAM, "There is no topic sales. Create it first."),
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
def test_an_error_of_spark_has_one_line(text, line):
    """What a worker or Spark itself found is one line, without Python's and Java's tracebacks."""
    assert reason(text).startswith(line)
    assert "\n" not in reason(text)
