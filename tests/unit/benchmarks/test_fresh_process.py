"""Calls in fresh processes: results, exceptions, crashes and timeouts."""

from __future__ import annotations

import importlib
import os
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
if str(ROOT) not in sys.path:  # the benchmarks are not part of the package
    sys.path.insert(0, str(ROOT))

fresh_process = importlib.import_module("benchmarks.fresh_process")
_LONG_SECONDS = 60


def test_call_returns_from_another_process():
    """Each call runs in a separate process."""
    first, second = (fresh_process.Call(os.getpid).result(_LONG_SECONDS) for _ in range(2))
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
def test_failed_call_raises_its_cause(function, argument, seconds, text):
    """A call that raises, dies or hangs raises an error here, and its process ends."""
    call = fresh_process.Call(function, argument)
    with pytest.raises(fresh_process.CallError, match=text):
        call.result(seconds)
