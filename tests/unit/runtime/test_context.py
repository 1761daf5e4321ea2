"""The version of the broker, and recent answers, which are not queried again."""

from __future__ import annotations

import pulsar
import pytest

from pulsar_ext._runtime import context
from pulsar_ext._runtime.context import BrokerVersion, RecentAnswers, skips_unknown_ledgers
from pulsar_ext.errors import AdminUnavailable


@pytest.mark.parametrize(
    ("version", "expected"),
    [("4.2.4", True), ("5.0.0-M1", True), ("10.1", True), ("3.3.6", False), ("2.11.0", False), ("", False)],
)
def test_brokers_from_4_0_ignore_unknown_ledgers(version, expected):
    """Brokers from 4.0 on ignore unknown ledgers; an invalid version counts as an old one."""
    assert skips_unknown_ledgers(version) is expected


def test_broker_version_is_queried_once():
    """The first access only begins the query, and another cluster is queried again."""
    jobs, answers = [], ["4.2.4", "3.0.7"]
    version = BrokerVersion(lambda: answers.pop(0), jobs.append)
    assert not version.skips_unknown_ledgers
    jobs.pop()()
    assert version.skips_unknown_ledgers
    version.forget()
    assert not version.skips_unknown_ledgers
    jobs.pop()()
    assert not version.skips_unknown_ledgers
    assert not jobs
    assert not answers


@pytest.mark.parametrize("error", [AdminUnavailable("no answer"), pulsar.AlreadyClosed("closed")])
def test_unknown_version_counts_as_an_old_one(error):
    """After an error of the admin API, the version counts as an old one."""
    jobs = []

    def ask():
        raise error

    version = BrokerVersion(ask, jobs.append)
    assert not version.skips_unknown_ledgers
    jobs.pop()()
    assert not version.skips_unknown_ledgers


@pytest.fixture
def clock(monkeypatch):
    """Return a settable monotonic time."""
    now = [100.0]
    monkeypatch.setattr(context.time, "monotonic", lambda: now[0])
    return now


def test_answer_is_kept_for_half_a_second(clock):
    """A second question within half a second is not asked, a later one is."""
    answers, asked = RecentAnswers(), iter(range(10))
    assert answers.ask("a", lambda: next(asked)) == 0
    clock[0] += 0.4
    assert answers.ask("a", lambda: next(asked)) == 0
    assert answers.ask("b", lambda: next(asked)) == 1
    clock[0] += 0.2
    assert answers.ask("a", lambda: next(asked)) == 2
    assert answers.ask("b", lambda: next(asked)) == 1


def test_failed_query_is_repeated(clock):
    """An error is not kept as an answer."""
    answers = RecentAnswers()
    with pytest.raises(ZeroDivisionError):
        answers.ask("a", lambda: 1 // 0)
    assert answers.ask("a", lambda: 1) == 1


def test_old_answers_are_dropped(clock):
    """A thousand questions, a second apart, leave one answer."""
    answers = RecentAnswers()
    for number in range(1000):
        answers.ask(number, lambda: None)
        clock[0] += 1
    assert len(answers._known) == 1
