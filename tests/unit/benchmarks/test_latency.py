"""Latencies: percentiles by the nearest rank, of the median run, without the first messages of each."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

ROOT = Path(__file__).parents[3]
if str(ROOT) not in sys.path:  # the benchmarks are not part of the package
    sys.path.insert(0, str(ROOT))

spread = importlib.import_module("benchmarks.latency.spread")
report = importlib.import_module("benchmarks.latency.report")


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0.1, 100))
def test_percentile_is_the_nearest_rank(values, percent):
    """A percentile is the lowest of the values that enough others do not exceed."""
    ordered = sorted(values)
    found = spread.percentile(ordered, percent)
    needed = len(ordered) * percent / 100
    assert sum(value <= found for value in ordered) >= needed - 1e-9
    assert sum(value < found for value in ordered) < needed + 1e-9


def test_runs_are_combined_without_warm_up():
    """The first ten of each of two runs of 100 are excluded, whatever their latency."""
    runs = [[1_000.0] * 10 + [float(number) for number in range(90)] for _ in range(2)]
    found = spread.spread_of("a way", 100, "pulsar", runs)
    assert (found.messages, found.most) == (180, 89.0)
    assert found.milliseconds == (44.0, 89.0, 89.0)


def test_stall_in_one_run_does_not_change_the_percentile():
    """The median run counts; the range over the runs is reported too."""
    calm, stalled = [float(number) for number in range(100)], [float(number) for number in range(90)] + [5_000.0] * 10
    found = spread.spread_of("a way", 100, "pulsar", [calm, stalled, calm])
    assert found.milliseconds == (54.0, 99.0, 99.0)
    assert (found.p99, found.most) == ((99.0, 5_000.0), 5_000.0)


def test_page_has_a_line_for_each_rate(tmp_path):
    """A line has way, rate and the times of both clients, and the plot is drawn."""
    spreads = [spread.spread_of("a way", 1_000, client, [[1.0, 2.0]]) for client in ("pulsar", "pulsar_ext")]
    page = report.page(spreads, {"date": "today"})
    assert f"| a way | 1,000 |{' 1.00 |' * 2}{' 2.00 |' * 4} 2.0 to 2.0 | 2.0 to 2.0 | 2.0 | 2.0 | 2 |" in page
    report.plot(spreads, tmp_path / "latency.png")
    assert (tmp_path / "latency.png").stat().st_size


def test_single_value_is_every_percentile():
    """A single value is every percentile."""
    assert [spread.percentile([3.0], percent) for percent in spread.PERCENTILES] == [3.0] * 3


@pytest.mark.parametrize("count", [1, 9])
def test_short_runs_are_counted_whole(count):
    """A run of fewer than ten messages has no warm-up."""
    assert len(spread.after_warm_up([1.0] * count)) == count
