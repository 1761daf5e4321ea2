"""The programs that show a scenario with the official client alone, and the reports that have them."""

from __future__ import annotations

import ast
import importlib
import sys
from pathlib import Path

import pytest

from pulsar_ext.cli.reproduce import app
from pulsar_ext.reproduce import SCENARIOS, to_script

ROOT = Path(__file__).parents[3]


def imported(tree):
    """The packages that a program imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (one.name.partition(".")[0] for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module.partition(".")[0]


def undefined(tree):
    """Names that a program uses and nobody defines, imports or binds."""
    nodes = list(ast.walk(tree))
    bound = {node.id for node in nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    bound |= {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}
    bound |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    bound |= {node.name for node in nodes if isinstance(node, ast.ExceptHandler)}
    aliases = [one for node in nodes if isinstance(node, ast.Import | ast.ImportFrom) for one in node.names]
    bound |= {(one.asname or one.name).partition(".")[0] for one in aliases}
    used = {node.id for node in nodes if isinstance(node, ast.Name)}
    return used - bound - set(dir(__builtins__) if not isinstance(__builtins__, dict) else __builtins__) - {"__file__"}


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_program_needs_the_official_client_alone(name):
    """It imports nothing else but the standard library, has no name undefined, and says nothing of this library."""
    text = to_script(SCENARIOS[name])
    tree = ast.parse(text)
    assert set(imported(tree)) <= sys.stdlib_module_names | {"pulsar"}
    assert undefined(tree) == set()
    assert "pulsar_ext" not in text


def test_the_command_prints_it(capsys):
    """--script prints the program of one scenario, and wants exactly one."""
    assert app(["chunk-seek", "--script"], result_action="return_value") == 0
    assert capsys.readouterr().out == to_script(SCENARIOS["chunk-seek"])
    assert app(["--script"], result_action="return_value") == 2


@pytest.mark.parametrize("name", [*SCENARIOS, "README"])
def test_the_reports_are_up_to_date(name, monkeypatch):
    """Each report has what the scenario and causes.toml say now."""
    monkeypatch.syspath_prepend(str(ROOT))
    upstream = importlib.import_module("docs.builder.upstream")
    written = (ROOT / "docs" / "upstream" / f"{name}.md").read_text()
    assert written == (upstream.contents() if name == "README" else upstream.report(name))
