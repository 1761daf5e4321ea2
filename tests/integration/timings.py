"""Summary of a run's time: the slowest fixtures, and the phases of all tests."""

from __future__ import annotations

import time
from collections import Counter

import pytest

_SHOWN = 12


class Timings:
    """Timer of fixtures in the process that sets them up; reports transport the times."""

    def __init__(self):
        self._fixtures, self._own = Counter(), {}
        self._uses, self._phases = Counter(), Counter()

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef):
        """Time one fixture, without those that it depends on."""
        start = time.perf_counter()
        try:
            return (yield)
        finally:
            name = fixturedef.argname
            self._own[name] = self._own.get(name, 0.0) + time.perf_counter() - start

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self):
        """Attach the fixtures' times since the last report."""
        report = yield
        report.fixture_seconds, self._own = self._own, {}
        return report

    def pytest_runtest_logreport(self, report):
        """Add the times of a report."""
        self._phases[report.when] += report.duration
        self._fixtures.update(getattr(report, "fixture_seconds", {}))  # a crashed worker reports none
        self._uses.update(report.fixture_seconds.keys())

    def pytest_terminal_summary(self, terminalreporter):
        """Print the slowest fixtures."""
        terminalreporter.section("slowest fixtures")
        for name, seconds in self._fixtures.most_common(_SHOWN):
            terminalreporter.write_line(f"{seconds:8.1f} s  {name}, {self._uses[name]} times")
        phases = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in self._phases.items())
        terminalreporter.write_line(f"all workers together: {phases}")
