"""Growth of a line: its exponent, and marking of lines that are not straight."""

from __future__ import annotations

import importlib
import math
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

ROOT = Path(__file__).parents[3]
if str(ROOT) not in sys.path:  # the benchmarks are not part of the package
    sys.path.insert(0, str(ROOT))

fit = importlib.import_module("benchmarks.growth.fit")
report = importlib.import_module("benchmarks.growth.report")
SIZES = (10, 100, 1_000, 10_000, 100_000)


def _growth(seconds, kib=lambda _: 0, requests=lambda _: None, sizes=SIZES, **options):
    points = [
        fit.Point(client, size, seconds(size) / (1 if client == "pulsar_ext" else 2), kib(size), requests(size), 3)
        for size in sizes
        for client in ("pulsar", "pulsar_ext")
    ]
    return fit.Growth("a line", "things", tuple(points), **options)


@given(
    st.floats(0, 3),
    st.floats(1e-6, 10),
    st.lists(st.integers(1, 10**6), min_size=2, max_size=9, unique=True),
)
def test_exponent_of_a_power_law(k, constant, sizes):
    """Costs of exactly c * size^k have the exponent k, in any order."""
    found = fit.exponent([(size, constant * size**k) for size in sizes])
    assert math.isclose(found, k, abs_tol=1e-6)


def test_constant_cost_does_not_hide_growth():
    """A constant that dominates the small sizes' cost leaves the upper half nearly straight."""
    assert fit.exponent([(size, 0.05 + size * 1e-4) for size in SIZES]) > 0.9


@pytest.mark.parametrize(
    "costs", [[], [(10, 1.0)], [(0, 1.0), (10, 1.0)], [(10, 0.0), (20, 1.0)], [(5, 1.0), (5, 2.0)]]
)
def test_single_size_has_no_exponent(costs):
    """An exponent needs two sizes above 0 that have a cost."""
    assert fit.exponent(costs) is None


@pytest.mark.parametrize(
    ("seconds", "kib", "is_straight"),
    [
        (lambda size: size * 1e-5, lambda size: 5_000 + size, True),
        (lambda size: size**1.3 * 1e-6, lambda size: 5_000 + size, False),
        (lambda size: size * 1e-5, lambda size: size**1.5, False),
        (lambda size: size * math.log(size) * 1e-6, lambda size: size, True),
        (lambda _: 0.1, lambda size: size**1.5 / 10_000, True),
    ],
    ids=["linear", "time", "memory", "with a logarithm", "of no memory to speak of"],
)
def test_time_and_memory_must_be_straight(seconds, kib, is_straight):
    """A line above the limit in time or memory is marked on the page."""
    growth = _growth(seconds, kib)
    assert growth.is_straight is is_straight
    marked = [line for line in report.page([growth], {}).splitlines() if line.endswith("| not straight |")]
    assert len(marked) == (not is_straight)


def test_memory_per_item_excludes_the_client():
    """The memory per item is the difference between the largest and the smallest size."""
    assert _growth(lambda _: 1.0, lambda size: 4_000 + 2 * size).each_kib("pulsar_ext") == pytest.approx(2)


@pytest.mark.parametrize(
    ("requests", "expected"), [(lambda _: 10, 0.5), (lambda size: size, None), (lambda _: None, None)]
)
def test_far_size_needs_bounded_requests(requests, expected):
    """A far size is computed from ten requests of at most 50 ms, but not from growing or uncounted ones."""
    growth = _growth(lambda size: 0.4 + size / 1e6, requests=requests, far=10**8)
    assert growth.far_seconds == (None if expected is None else pytest.approx(expected))
    assert ("| 100,000,000 things, by arithmetic |" in report.page([growth], {})) == (expected is not None)


def test_fastest_and_smallest_run_count():
    """The merged point has the minimum of time, memory and requests over the runs."""
    runs = [fit.Sample(2.0, 300, 9), fit.Sample(1.0, 400, 10), fit.Sample(3.0, 200)]
    assert fit.merged("pulsar", 7, runs) == fit.Point("pulsar", 7, 1.0, 200, 9, 3)


def test_page_lists_failed_measurements(tmp_path):
    """A failed size is named after the table, and the plot shows the other sizes, including size 0."""
    growth = _growth(lambda size: size + 1, sizes=(0, 10, 100), failures=("1,000 things: did not end in 900 s",))
    assert "Not measured: a line, 1,000 things: did not end in 900 s" in report.page([growth], {"date": "today"})
    report.plot([growth], tmp_path / "growth.png")
    assert (tmp_path / "growth.png").stat().st_size
