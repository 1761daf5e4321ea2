"""What a failed test shows: of a broker's log, and of options that cannot be."""

from __future__ import annotations

import pytest

from pulsar_ext.testing.run import shown_of, told_plainly, usual_admin_url

LOG = """\
2026-11-29T11:05:42,375 - INFO  - [main:PulsarStandalone@450] - Starting
2026-11-29T11:05:44,447 - WARN  - [main:DNS@244] - Unable to determine hostname
java.net.UnknownHostException: lo
\tat java.base/java.net.InetAddress
2026-11-29T11:05:45,000 - INFO  - [main:X@1] - Created topic
2026-11-29T11:05:45,193 - ERROR - [main:Journal@252] - Problems reading""".splitlines()


def test_warnings_come_with_their_stack_traces():
    """Of a broker's log, warnings and errors are shown with the lines that belong to them, or all of it."""
    assert shown_of(LOG, "warn") == [*LOG[1:4], LOG[5]]
    assert shown_of(LOG, "all") == LOG


def test_a_url_without_its_scheme_is_told_plainly():
    """The test fails with a line that says what to give, and no traceback of the plugin."""
    with pytest.raises(pytest.fail.Exception, match="give pulsar://host:port") as failed, told_plainly():
        usual_admin_url("localhost:6650")
    assert not failed.value.pytrace
    assert usual_admin_url("pulsar://here:6650") == "http://here:8080"
