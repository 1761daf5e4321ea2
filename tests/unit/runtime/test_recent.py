"""What was just asked is not asked again, and nothing is kept for longer."""

from __future__ import annotations

import pytest

from pulsar_ext._runtime import context
from pulsar_ext._runtime.context import RecentAnswers


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
