"""The checks of words and of code that differs in words only."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

_FOLDER = Path(__file__).parents[2] / "words"


def _program(name):
    spec = importlib.util.spec_from_file_location(name, _FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("name", "source", "found"),
    [
        ("pulsar_ext/a.py", '"""Return the message behind it."""', ["behind"]),
        ("pulsar_ext/a.py", '"""What it returns."""', ["What"]),
        ("pulsar_ext/a.py", "x = 1  # nobody hears of it", ["hears", "hears of", "nobody"]),
        ("pulsar_ext/a.py", "how_many = 1", ["how_many"]),
        ("pulsar_ext/a.py", f"def test_{'x' * 60}(): pass", [f"test_{'x' * 60}"]),
        ("pulsar_ext/a.py", 'x = "behind"', []),
        ("pulsar_ext/a.py", '"""Return the messages after a proxy; there is none."""', []),
        ("docs/a.md", "It is behind.\n```\nbehind\n```\n`behind` and [this](behind.md)", ["behind"]),
        ("pulsar_ext/a.cpp", "int behind;  // whoever\n", ["whoever"]),
    ],
)
def test_words_are_found_in_prose_and_names(name, source, found):
    """Banned words are found in docstrings, comments, prose and defined names, and not in data or code."""
    check = _program("check")
    assert sorted(each.text for each in check.findings(check.ROOT / name, source)) == sorted(found)


def test_allowed_places_are_few():
    """At most 20 places may keep a banned word, each with a reason."""
    allowed = _program("check").RULES["allow"]
    assert len(allowed) <= 20
    assert all(each["why"] for each in allowed)


def test_shape_ignores_names_and_strings():
    """Two sources have the same shape if only names, strings, docstrings and imports differ."""
    shape = _program("same_code").shape
    before = 'import a\ndef f(x):\n    """Give."""\n    raise E(f"no {x}")\n'
    assert shape(before) == shape('from b import c\ndef g(y):\n    raise K("invalid")\n')
    assert shape(before) != shape("def g(y):\n    return K('invalid')\n")
    assert shape("f(1)") != shape("f(2)")
