"""Retries of calls that fail for a transient reason."""

from __future__ import annotations

import pytest

from pulsar_ext._native import threads
from pulsar_ext._runtime.retry import retry


def test_retries_have_growing_pauses(monkeypatch):
    """A transient error is retried after pauses that grow up to the longest."""
    pauses, answers = [], iter([OSError, OSError, OSError, None])
    monkeypatch.setattr(threads, "sleep", pauses.append)

    def call():
        error = next(answers)
        if error is not None:
            raise error
        return "answer"

    assert retry(call, lambda error: isinstance(error, OSError), seconds=1.0, longest=1.3) == "answer"
    assert pauses == [1.0, 1.25, 1.3]


def test_permanent_error_is_raised_at_once(monkeypatch):
    """A permanent error is raised without another call."""
    monkeypatch.setattr(threads, "sleep", lambda _: pytest.fail("paused"))
    with pytest.raises(ValueError, match="for good"):
        retry(lambda: int("for good"), lambda error: isinstance(error, OSError), seconds=1.0)
