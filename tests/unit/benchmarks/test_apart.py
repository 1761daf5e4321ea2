"""A call in a process of its own: what it returns, raises or leaves unsaid comes back."""

from __future__ import annotations

import importlib
import os
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
if str(ROOT) not in sys.path:  # the benchmarks are no part of the package
    sys.path.insert(0, str(ROOT))

apart = importlib.import_module("benchmarks.apart")
_LONG_SECONDS = 60


def test_it_gives_what_the_function_returns_in_another_process():
    """Each call has a process of its own."""
    first, second = (apart.Call(os.getpid).result(_LONG_SECONDS) for _ in range(2))
    assert len({first, second, os.getpid()}) == 3


@pytest.mark.parametrize(
    ("function", "argument", "seconds", "text"),
    [
        (int, "x", _LONG_SECONDS, "ValueError: invalid literal"),
        (os._exit, 1, _LONG_SECONDS, "its process died"),
        (time.sleep, 600, 0.1, "did not end in 0.1 s"),
    ],
    ids=["raises", "dies", "hangs"],
)
def test_it_says_why_there_is_no_answer(function, argument, seconds, text):
    """What raises, dies or hangs is an error here, and the process is gone."""
    call = apart.Call(function, argument)
    with pytest.raises(apart.CallError, match=text):
        call.result(seconds)
