"""The version of the broker: what depends on it, and when it is asked for."""

import pulsar
import pytest

from pulsar_ext._runtime.context import BrokerVersion, passes_over_unknown
from pulsar_ext.errors import AdminUnavailable


@pytest.mark.parametrize(
    ("version", "expected"),
    [("4.2.4", True), ("5.0.0-M1", True), ("10.1", True), ("3.3.6", False), ("2.11.0", False), ("", False)],
)
def test_brokers_from_4_on_pass_over_unknown_ledgers(version, expected):
    """A version that cannot be read counts as an old one."""
    assert passes_over_unknown(version) is expected


def test_the_version_is_asked_for_once():
    """The first question only begins the look-up, and another cluster is asked again."""
    jobs, answers = [], ["4.2.4", "3.0.7"]
    version = BrokerVersion(lambda: answers.pop(0), jobs.append)
    assert not version.passes_over_unknown
    jobs.pop()()
    assert version.passes_over_unknown
    version.forget()
    assert not version.passes_over_unknown
    jobs.pop()()
    assert not version.passes_over_unknown
    assert not jobs
    assert not answers


@pytest.mark.parametrize("error", [AdminUnavailable("no answer"), pulsar.AlreadyClosed("closed")])
def test_an_unknown_version_counts_as_an_old_one(error):
    """What the admin API raises is no answer."""
    jobs = []

    def ask():
        raise error

    version = BrokerVersion(ask, jobs.append)
    assert not version.passes_over_unknown
    jobs.pop()()
    assert not version.passes_over_unknown
