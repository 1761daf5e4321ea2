"""The version of the broker, when it is asked for, and recent answers, which are not asked for again."""

from __future__ import annotations

import pulsar
import pytest

from pulsar_ext._runtime import context
from pulsar_ext._runtime.context import BrokerVersion, RecentAnswers, passes_over_unknown
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


@pytest.fixture
def clock(monkeypatch):
    """Have the time be what the test says."""
    now = [100.0]
    monkeypatch.setattr(context.time, "monotonic", lambda: now[0])
    return now


def test_an_answer_holds_for_half_a_second(clock):
    """The second question within half a second is not asked, the one behind that is."""
    answers, asked = RecentAnswers(), iter(range(10))
    assert answers.ask("a", lambda: next(asked)) == 0
    clock[0] += 0.4
    assert answers.ask("a", lambda: next(asked)) == 0
    assert answers.ask("b", lambda: next(asked)) == 1
    clock[0] += 0.2
    assert answers.ask("a", lambda: next(asked)) == 2
    assert answers.ask("b", lambda: next(asked)) == 1


def test_what_fails_is_asked_again(clock):
    """An error is no answer."""
    answers = RecentAnswers()
    with pytest.raises(ZeroDivisionError):
        answers.ask("a", lambda: 1 // 0)
    assert answers.ask("a", lambda: 1) == 1


def test_no_old_answer_is_kept(clock):
    """A thousand questions, a second apart, leave one answer."""
    answers = RecentAnswers()
    for number in range(1000):
        answers.ask(number, lambda: None)
        clock[0] += 1
    assert len(answers._known) == 1
