"""Programs that show a scenario with the official client only, and the reports that contain them."""

from __future__ import annotations

import ast
import inspect
import sys

import pytest

from pulsar_ext.cli.reproduce import app
from pulsar_ext.reproduce import SCENARIOS, _support, causes, to_report, to_script


def imported(tree):
    """Yield the packages that a program imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (one.name.partition(".")[0] for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module.partition(".")[0]


def undefined(tree):
    """Return the names that a program uses without defining, importing or binding them."""
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
def test_program_needs_only_the_official_client(name):
    """A program imports the official client and the standard library only, and has no undefined name."""
    text = to_script(SCENARIOS[name])
    tree = ast.parse(text)
    assert set(imported(tree)) <= sys.stdlib_module_names | {"pulsar"}
    assert undefined(tree) == set()
    assert "pulsar_ext" not in text


def defined(tree):
    """Yield the names that a module defines."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign):
            yield from (name.id for target in node.targets for name in ast.walk(target) if isinstance(name, ast.Name))


def test_scenarios_redefine_no_shared_name():
    """A program is two files in one, so neither defines a name of the other."""
    shared = set(defined(ast.parse(inspect.getsource(_support))))
    for scenario in SCENARIOS.values():
        module = sys.modules[scenario.run.__module__]
        assert not shared & set(defined(ast.parse(inspect.getsource(module)))), scenario.name


def test_command_prints_the_program(capsys):
    """--script prints the program of one scenario, and requires exactly one."""
    assert app(["chunk-seek", "--script"], result_action="return_value") == 0
    assert capsys.readouterr().out == to_script(SCENARIOS["chunk-seek"])
    assert app(["--script"], result_action="return_value") == 2


def test_every_scenario_has_a_report():
    """scenarios.toml has five texts for each scenario, and a report shows them with the program."""
    assert causes().keys() == SCENARIOS.keys()
    assert {tuple(sorted(texts)) for texts in causes().values()} == {("cause", "fix", "thread", "title", "where")}
    scenario = SCENARIOS["chunk-seek"]
    report = to_report(scenario, "1 of 3 lost", "4.2.4")
    texts = causes()["chunk-seek"]
    for expected in (f"# {texts['title']}", texts["cause"], "**1 of 3 lost**", "broker 4.2.4", to_script(scenario)):
        assert expected in report
