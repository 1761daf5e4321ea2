"""The programs that show a scenario with the official client alone, and the reports that have them."""

from __future__ import annotations

import ast
import inspect
import sys

import pytest

from pulsar_ext.cli.reproduce import app
from pulsar_ext.reproduce import SCENARIOS, _support, causes, to_report, to_script


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


def defined(tree):
    """The names that a module defines."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign):
            yield from (name.id for target in node.targets for name in ast.walk(target) if isinstance(name, ast.Name))


def test_scenarios_take_no_name_of_what_they_share():
    """A program is two files in one, so neither may define what the other defines."""
    shared = set(defined(ast.parse(inspect.getsource(_support))))
    for scenario in SCENARIOS.values():
        module = sys.modules[scenario.run.__module__]
        assert not shared & set(defined(ast.parse(inspect.getsource(module)))), scenario.name


def test_the_command_prints_it(capsys):
    """--script prints the program of one scenario, and wants exactly one."""
    assert app(["chunk-seek", "--script"], result_action="return_value") == 0
    assert capsys.readouterr().out == to_script(SCENARIOS["chunk-seek"])
    assert app(["--script"], result_action="return_value") == 2


def test_every_scenario_has_a_report():
    """causes.toml has the five texts of each scenario and of nothing else, and a report shows them with the program."""
    assert causes().keys() == SCENARIOS.keys()
    assert {tuple(sorted(texts)) for texts in causes().values()} == {("cause", "fix", "thread", "title", "where")}
    scenario = SCENARIOS["chunk-seek"]
    report = to_report(scenario, "1 of 3 lost", "4.2.4")
    texts = causes()["chunk-seek"]
    for expected in (f"# {texts['title']}", texts["cause"], "**1 of 3 lost**", "broker 4.2.4", to_script(scenario)):
        assert expected in report
