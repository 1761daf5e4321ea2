"""Selection of tests by tier and part."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import tiers
from hypothesis import given
from hypothesis import strategies as st

KINDS = st.sampled_from([None, None, *tiers.STARTING])


class Item:
    """Test item in the shape of pytest's."""

    def __init__(self, name, marks=(), **parameters):
        self.path = Path(tiers.__file__).parent / "skip/test_live.py"
        self.nodeid = f"{self.path}::{name}[{parameters}]"
        self.callspec = SimpleNamespace(params=parameters)
        self._marks = list(marks)

    def iter_markers(self, name):
        return [mark.mark for mark in self._marks if mark.name == name]

    def get_closest_marker(self, name):
        return next(iter(self.iter_markers(name)), None)


def both(name, *marks, **parameters):
    return [Item(name, marks, **parameters, client_factory=client) for client in ("blocking", "awaited")]


CORE = pytest.mark.core
MIXED = [
    *both("plain", way="a"),
    *(item for way in "ab" for item in both("core", CORE, way=way)),
    *(item for way in "ab" for item in both("each", CORE(each="way"), way=way)),
    *both("awaited", CORE(awaited=True)),
    *both("long", pytest.mark.on_demand),
]


def shown(items):
    return [(item.nodeid.partition("::")[2].partition("[")[0], *item.callspec.params.values()) for item in items]


def test_slow_tests_come_first_and_clusters_late():
    """Slow tests come first, Spark's last of them; a slow test through a cluster follows two thirds of the others."""
    slow = CORE(slow="starts")
    items = [
        *(Item(f"other {number}", [CORE]) for number in range(3)),
        Item("cluster", [slow], pulsar_through="cluster"),
        Item("spark", [slow, pytest.mark.xdist_group("spark-write")]),
        Item("slow", [slow], pulsar_through="standalone"),
    ]
    names = [name for name, *_ in shown(tiers.order(items))]
    assert names == ["slow", "spark", "other 0", "other 1", "cluster", "other 2"]


def test_core_selects_marked_tests():
    """Core has one item of each marked test, one per value of `each`, and the asyncio twin if requested."""
    assert shown(tiers.select(MIXED, "core")) == [
        ("core", "a", "blocking"),
        ("each", "a", "blocking"),
        ("each", "b", "blocking"),
        ("awaited", "blocking"),
        ("awaited", "awaited"),
    ]


def test_core_and_rest_cover_all_tests():
    """Core and rest have no common item, and together every parameter value, and a twin of each test."""
    core, rest = tiers.select(MIXED, "core"), tiers.select(MIXED, "rest")
    assert not set(core) & set(rest)
    assert set(core) | set(rest) == set(tiers.select(MIXED, "all"))
    assert shown(rest) == [
        ("plain", "a", "blocking"),
        ("plain", "a", "awaited"),
        ("core", "a", "awaited"),
        ("core", "b", "blocking"),
        ("each", "a", "awaited"),
    ]
    assert tiers.select(MIXED, "every") == MIXED


@given(
    st.dictionaries(st.text("abc", min_size=1), st.tuples(KINDS, st.floats(0.1, 300)), min_size=1), st.integers(1, 9)
)
def test_parts_divide_and_balance_modules(modules, parts):
    """Each module is in one part, for any order of modules, and the parts are balanced."""
    kinds = {name: kind for name, (kind, _) in modules.items()}
    seconds = {name: duration for name, (_, duration) in modules.items()}
    where = tiers.divide(kinds, parts, seconds)
    assert where == tiers.divide(dict(reversed(kinds.items())), parts, seconds)
    assert where.keys() == modules.keys()
    loads = [sum(seconds[name] for name in where if where[name] == part) for part in range(parts)]
    starting = sum(tiers.STARTING.values())
    assert max(loads) <= sum(seconds.values()) / parts + max(seconds.values()) + starting


def test_parts_group_modules_with_expensive_starts():
    """The modules of a kind that fit into one part are in one part."""
    kinds = {f"{kind}{number}": kind for kind in ("cluster", "spark", None) for number in range(8)}
    where = tiers.divide(kinds, 4, dict.fromkeys(kinds, 100.0))
    for kind in ("cluster", "spark"):
        assert len({where[name] for name in kinds if kinds[name] == kind}) == 2, "800 s each, 630 a part"


@pytest.mark.parametrize("text", ["", "3", "0/8", "9/8", "a/b", "1/0", "-1/8"])
def test_invalid_part_raises(text):
    """An invalid part raises an error with the value and the expected form."""
    with pytest.raises(ValueError, match=rf"3/8, got '{text}'"):
        tiers.parse_part(text)


def test_durations_are_recorded_by_module(tmp_path):
    """A module's seconds are the sum of its tests, separate per way; a module that did not run keeps its own."""
    report = tmp_path / "report.xml"
    through = '<properties><property name="through" value="cluster"/></properties>'
    cases = [("a.TestB", "test_c", 1.5, ""), ("a", "test_d[mtls]", 1.0, ""), ("a", "test_d[x]", 2.0, through)]
    text = "".join(
        f'<testcase classname="tests.integration.ack.test_{where}" name="{name}" time="{seconds}">{inner}</testcase>'
        for where, name, seconds, inner in cases
    )
    report.write_text(f"<testsuites><testsuite>{text}</testsuite></testsuites>")
    assert tiers.record([report], {"skip/test_x.py": 4.0}) == {
        "ack/test_a.py": 2.5,
        "ack/test_a.py through cluster": 2.0,
        "skip/test_x.py": 4.0,
    }
