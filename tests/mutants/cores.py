"""Mutation tests of the pure cores: a small fault in a core should fail one of its unit tests; see cores.toml.

    python tests/mutants/cores.py                  # all cores, and the table of them
    python tests/mutants/cores.py ack/tracker --every 4 --json found.json

The tests are imported once. For each mutant a fork replaces the code of the mutated function, and runs the tests that
call it, the fastest first. Mutated are comparisons, operators, conditions, numbers, booleans, returned and assigned
values, raises, and statements that are only a call; not texts, annotations, defaults, decorators and `strict=`.
"""

from __future__ import annotations

import argparse
import ast
import copy
import gc
import json
import os
import signal
import sys
import tempfile
import threading
import time
import tomllib
import traceback
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CORES = tomllib.loads((HERE / "cores.toml").read_text())
_SWAPS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv,
    ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
    ast.Break: ast.Continue, ast.Continue: ast.Break,
}  # fmt: skip
_CONDITIONS = (ast.Name, ast.Attribute, ast.Call, ast.NamedExpr)
_PYTEST = ["-qq", "-s", "-n", "0", "-p", "no:sugar", "--tb=no", "--randomly-seed=1", "--hypothesis-seed=1"]


def faults(node):  # noqa: C901  # a case for each kind of node
    """Yield replacements of a node of a function, each with one small fault."""
    new = copy.copy(node)
    match node:
        case ast.Compare(ops=ops):
            for at, op in enumerate(ops):
                yield ast.Compare(node.left, [*ops[:at], _SWAPS[type(op)](), *ops[at + 1 :]], node.comparators)
        case ast.BoolOp() | ast.BinOp() | ast.AugAssign() if type(node.op) in _SWAPS:
            new.op = _SWAPS[type(node.op)]()
            yield new
        case ast.Break() | ast.Continue():
            yield _SWAPS[type(node)]()
        case ast.UnaryOp(op=ast.Not()):
            yield node.operand
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value)):
            yield ast.Constant(value + 1)
        case ast.Return(value=value) | ast.Assign(value=value) if not isinstance(value, ast.Constant | None):
            new.value = ast.Constant(None)
            yield new
        case ast.Raise() | ast.Expr(value=ast.Call()):
            yield ast.Pass()
        case ast.If() | ast.IfExp() | ast.While() if isinstance(node.test, _CONDITIONS):
            new.test = ast.UnaryOp(ast.Not(), node.test)
            yield new


def mutants(parent, name="", inside=False):
    """Yield `(function, line, description)` of each fault, while the tree has only that fault."""
    for field, child in ast.iter_fields(parent):
        if field in {"annotation", "returns", "args", "decorator_list"} and not isinstance(parent, ast.Call):
            continue
        for node in child if isinstance(child, list) else [child]:
            if not isinstance(node, ast.AST) or isinstance(node, ast.Assert | ast.JoinedStr):
                continue
            if isinstance(node, ast.keyword) and node.arg == "strict":
                continue  # like an assert: iterables of unequal length would be a fault of another function
            for fault in faults(node) if inside else ():
                was, now = (" ".join(ast.unparse(one).split())[:70] for one in (node, fault))
                _replace(parent, field, node, ast.copy_location(fault, node))
                yield name, node.lineno, f"`{was}` → `{now}`"
                _replace(parent, field, fault, node)
            if not inside and isinstance(node, ast.FunctionDef | ast.ClassDef):
                yield from mutants(node, f"{name}.{node.name}".lstrip("."), isinstance(node, ast.FunctionDef))
            else:
                yield from mutants(node, name, inside)


def _replace(parent, field, old, new):
    value = getattr(parent, field)
    setattr(parent, field, [new if one is old else one for one in value] if isinstance(value, list) else new)


class Runner:
    """pytest plugin that runs the collected tests unchanged, then for each mutant.

    Args:
        path: the core.
        examples: the number of hypothesis examples.
        every: mutate each n-th place only.
        known: the finding tests of an earlier run; mutants that were found are not tried again.
    """

    def __init__(self, path, examples, every, known):
        self.path, self.examples, self.every, self.known, self.found = path, examples, every, known, {}

    def pytest_collection(self):
        """Replace the settings of hypothesis before the tests are imported, which use them."""
        from hypothesis import Phase, settings  # noqa: PLC0415  # pytest has to import it first

        set_up, phases = settings.__init__, (Phase.explicit, Phase.generate)
        options = {"database": None, "phases": phases, "report_multiple_bugs": False, "max_examples": self.examples}
        settings.__init__ = lambda self, parent=None, **given: set_up(self, parent, **given | options)
        settings.register_profile("mutants", deadline=None)
        settings.load_profile("mutants")

    def pytest_runtestloop(self, session):
        """Record the functions that each test calls, then try each mutant."""
        functions = [one for one in gc.get_objects() if isinstance(one, FunctionType)]
        functions = [one for one in functions if one.__code__.co_filename == str(self.path)]
        gc.freeze()  # a collection in a fork would copy all memory
        calls, failed = in_fork(lambda: self.observe(session), 600)
        if failed:
            pytest.exit(f"{self.path}: fails without a mutant: {failed}", 1)
        tree = ast.parse(self.path.read_text())
        for number, (function, line, what) in enumerate(mutants(tree)):
            name = f"{function} {line} {what}"
            self.found[name] = self.known.get(name)
            if self.found[name] or number % self.every:
                continue
            code = compile(ast.fix_missing_locations(tree), str(self.path), "exec")
            called = sorted((test for test in calls if function in calls[test][1]), key=lambda test: calls[test][0])
            tests = [item for test in called for item in session.items if item.nodeid == test]
            seconds = 20 + 5 * sum(calls[test][0] for test in called)
            found = in_fork(lambda code=code, tests=tests: kill(session, functions, code, tests), seconds)
            self.found[name] = found or "SURVIVES"
            print(self.found[name], name, flush=True)
        return True

    def observe(self, session):
        """Return the seconds and the called functions of the core by test, and a failing test."""
        calls = {}
        for item in session.items:
            names: set[str] = set()

            def profile(frame, event, _, names=names):
                if event == "call" and frame.f_code.co_filename == str(self.path):
                    names.add(frame.f_code.co_qualname.partition(".<locals>")[0])

            begun = time.monotonic()
            threading.setprofile(profile)
            sys.setprofile(profile)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
            sys.setprofile(None)
            calls[item.nodeid] = time.monotonic() - begun, list(names)
            if session.testsfailed:
                return calls, item.nodeid
        return calls, None


def kill(session, functions, code, tests):
    """Run tests with the functions of a core replaced; return the failing one, or None."""
    codes = {(one.co_qualname, one.co_firstlineno): one for one in codes_of(code)}
    for function in functions:
        key = function.__code__.co_qualname, function.__code__.co_firstlineno
        function.__code__ = codes.get(key, function.__code__)
    for item in tests:
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
        if session.testsfailed:
            return item.name
    return None


def codes_of(code):
    """Yield a code object and all code objects in it."""
    yield code
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from codes_of(const)


def in_fork(call, seconds, *, is_quiet=True):
    """Return the result of a call in a fork; "ended" or "endless" if the fork ends early or takes too long."""
    with tempfile.TemporaryFile("w+") as file:
        child = os.fork()
        if not child:
            os.setpgid(0, 0)
            if is_quiet:
                os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            try:
                json.dump(call(), file)
                file.flush()
            except BaseException:  # noqa: BLE001  # the fork ends here after any error
                traceback.print_exc()
            finally:
                os._exit(0)
        until = time.monotonic() + seconds
        while not os.waitpid(child, os.WNOHANG)[0]:
            if time.monotonic() > until:
                os.killpg(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return "endless"
            time.sleep(0.005)
        file.seek(0)
        return json.loads(file.read() or '"ended"')


def main():
    """Try the mutants of cores; print a table and the surviving ones."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("cores", nargs="*", metavar="CORE", help="of cores.toml; all by default")
    parser.add_argument("--every", type=int, default=1, help="try each n-th mutant only")
    parser.add_argument("--examples", type=int, default=100, help="of hypothesis for each test")
    parser.add_argument("--json", type=Path, help="file for the results; an existing one is continued")
    given = parser.parse_args()
    every = json.loads(given.json.read_text()) if given.json and given.json.exists() else {}
    for core in given.cores or CORES:
        known = {name: test for name, test in every.get(core, {}).items() if test not in {None, "SURVIVES"}}
        runner = Runner(ROOT / "pulsar_ext" / f"{core}.py", given.examples, given.every, known)
        tests = [str(ROOT / "tests/unit" / test) for test in CORES[core]]
        run = partial(pytest.main, [*_PYTEST, *tests], [runner])
        code, every[core] = in_fork(lambda run=run, runner=runner: (run(), runner.found), 24 * 3600, is_quiet=False)
        if code:
            sys.exit(f"{core}: pytest ended with {code}")
        if given.json:
            given.json.write_text(json.dumps(every, indent=1))
    show(every)


def show(every):
    """Print a table, and the surviving mutants."""
    print("| core | mutants | tried | killed | |", "|---|---|---|---|---|", sep="\n")
    for core, found in every.items():
        tried = [test for test in found.values() if test]
        killed = len(tried) - tried.count("SURVIVES")
        print(f"| `{core}` | {len(found)} | {len(tried)} | {killed} | {killed / max(len(tried), 1):.0%} |")
    for core, found in every.items():
        print(*(f"- `{core}` {name}" for name, test in found.items() if test == "SURVIVES"), sep="\n")


if __name__ == "__main__":
    main()
