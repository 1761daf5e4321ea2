"""The program that interrupts every public method anywhere, with few points: it runs, and finds nothing."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import pytest

_PROGRAMS = Path(__file__).parents[2] / "faults"
_KINDS = ("raise", "send", "raise", "close")
_OPEN = {
    "Reader.seek": "the C++ client answers no seek that a close interrupts",
    "asyncio.Consumer.seek": "likewise",
    "asyncio.Reader.seek": "likewise",
    "GroupReader.read_next": "loses a message between its receive and its return",
    "RangeConsumer.batch_receive": "loses a batch between its receive and its filter",
}
"""What `RESULTS-interrupt.md` says is open."""


@pytest.fixture(scope="module")
def faults():
    """The programs as modules."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(_PROGRAMS))
        import interrupt  # noqa: PLC0415  # a program beside the tests

        yield interrupt
        for name in [name for name in sys.modules if name.startswith("interrupt")]:
            sys.modules.pop(name)


def test_no_method_loses_anything_to_a_signal(faults, pulsar_broker_factory):
    """One way of each method, at three points, with handlers that raise, send and close by turns: no finding."""
    broker = pulsar_broker_factory("dedup")
    methods = {case.method: name for name, case in reversed(faults.CASES.items()) if case.method not in _OPEN}
    jobs = list(zip(methods.values(), itertools.cycle(_KINDS), strict=False))
    runs = faults.run_all((broker.service_url, broker.admin_url), jobs, most=3)
    assert [(one.name, one.kind, one.findings) for one in runs if one.findings] == []
    assert sum(one.arrived for one in runs) > len(jobs)
