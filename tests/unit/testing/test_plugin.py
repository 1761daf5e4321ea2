"""Output of a failed test: lines of a broker's log, and errors of invalid options."""

from __future__ import annotations

import pytest

from pulsar_ext.testing.plugin import log_lines, reason_only, usual_admin_url

LOG = """\
2026-11-29T11:05:42,375 - INFO  - [main:PulsarStandalone@450] - Starting
2026-11-29T11:05:44,447 - WARN  - [main:DNS@244] - Unable to determine hostname
java.net.UnknownHostException: lo
\tat java.base/java.net.InetAddress
2026-11-29T11:05:45,000 - INFO  - [main:X@1] - Created topic
2026-11-29T11:05:45,193 - ERROR - [main:Journal@252] - Problems reading""".splitlines()


def test_warnings_have_their_stack_traces():
    """Warnings and errors of a broker's log are shown with the lines that belong to them, or all lines are."""
    assert log_lines(LOG, "warn") == [*LOG[1:4], LOG[5]]
    assert log_lines(LOG, "all") == LOG


def test_url_without_a_scheme_fails_with_one_line():
    """The test fails with a line that says what to pass, without a stack trace of the plugin."""
    with pytest.raises(pytest.fail.Exception, match="is not pulsar://host:port") as failed, reason_only():
        usual_admin_url("localhost:6650")
    assert not failed.value.pytrace
    assert usual_admin_url("pulsar://here:6650") == "http://here:8080"
