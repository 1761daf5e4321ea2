"""Break the shells in one place at a time, and report the test of the core tier that finds it; see shells.toml.

    python tests/mutants/run.py                    # every mutant
    python tests/mutants/run.py ack-one-too-many --all --json found.json

Each mutant is applied to a copy of the checkout, with uncommitted changes. The brokers are started once. At the end
each test that found a mutant runs without one: a test that fails there has found nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from pulsar_ext.testing.rpc import PoolServer
from pulsar_ext.testing.shared import Pool

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
MUTANTS = tomllib.loads((HERE / "shells.toml").read_text())
CORE = "tests/integration"
_SECONDS = 300
"""Timeout of a run; a longer one has found an endless wait."""
_OPTIONS = ["-q", "-n", "0", "-p", "brokers", "-p", "no:sugar", "--randomly-seed", "1", "-rfE"]


def main(arguments):
    """Run mutants; return the number of mutants that were not found."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="a mutant of shells.toml; all by default")
    parser.add_argument("--first", action="store_true", help="only the first of each mutant's tests")
    parser.add_argument("--all", action="store_true", help="the whole core tier for mutants that named tests miss")
    parser.add_argument("--json", type=Path, help="file for the results; an existing one is continued")
    given = parser.parse_args(arguments)
    results = json.loads(given.json.read_text()) if given.json and given.json.exists() else {}
    with contextlib.ExitStack() as stack:
        copy = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mutants-")))
        for name in ("pulsar_ext", "tests", "pyproject.toml", "docs", "README.md", "benchmarks", "examples"):
            copy_of = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy_of(ROOT / name, copy / name)
        pool = Pool("process", print)
        stack.callback(pool.close)
        server = PoolServer(lambda: pool)
        stack.callback(server.close)
        run = Run(copy, json.dumps(server.ticket))
        names = given.names or [one for one in MUTANTS if not results.get(one, {}).get("found_by")]
        for name in track(names, "mutants", console=Console(stderr=True)):
            results[name] = run.mutant(MUTANTS[name], 1 if given.first else None, whole=given.all)
            print(name, results[name])
            if given.json:
                given.json.write_text(json.dumps(results, indent=1))
        finders = {result["found_by"].partition("[")[0] for result in results.values() if result["found_by"]}
        doubtful = run.failing(sorted(one for one in finders if one.startswith(CORE)))
    return show(results, doubtful)


class Run:
    """Runner of tests in a copy of the checkout.

    Args:
        copy: its path.
        ticket: allows a process to use the brokers.
    """

    def __init__(self, copy, ticket):
        self._copy = copy
        paths = [str(copy), str(copy / "tests/mutants")]
        self._environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "MUTANTS_TICKET": ticket}

    def mutant(self, mutant, most, *, whole):
        """Return the test that found a mutant, the seconds until then, and the tests that were run last."""
        path = self._copy / "pulsar_ext" / mutant["file"]
        text = path.read_text()
        if text.count(mutant["old"]) != 1:
            return {"found_by": None, "seconds": 0, "in": "does not apply: `old` must occur once in the file"}
        begun = time.monotonic()
        path.write_text(text.replace(mutant["old"], mutant["new"]))
        try:
            for tests in [*mutant["tests"][:most], *([CORE] if whole else ())]:
                if found := self.failing([tests], "-x"):
                    break
        finally:
            path.write_text(text)
        return {"found_by": found[0] if found else None, "seconds": round(time.monotonic() - begun), "in": tests}

    def failing(self, tests, *options):
        """Return the failing tests, with `-x` the first one; "endless" if they do not end."""
        if not tests:
            return []
        tier = ["--tier", "core"] if tests[0].startswith(CORE) else []
        command = [sys.executable, "-m", "pytest", *_OPTIONS, *options, *tier, *tests]
        program = subprocess.Popen(
            command, cwd=self._copy, env=self._environment, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        try:
            output, _ = program.communicate(timeout=_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(program.pid, signal.SIGKILL)
            return ["endless"]
        if program.returncode in {0, 5}:  # all pass, or the tier has no test
            return []
        return re.findall(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE) or [output[-300:]]


def show(results, doubtful):
    """Print a table; return the number of mutants that were not found."""
    table = Table("mutant", "breaks", "found by", "s")
    missed = [name for name, result in results.items() if result["found_by"] is None]
    for name, result in results.items():
        table.add_row(name, MUTANTS[name]["breaks"], result["found_by"] or result["in"], str(result["seconds"]))
    Console().print(table, f"{len(results) - len(missed)} of {len(results)} found; not found: {missed}")
    print("Fails without a mutant too:", doubtful)
    return len(missed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
