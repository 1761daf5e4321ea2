"""Imports load few modules, counted in separate interpreters."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pulsar_ext

_SHOW = "import json, sys; print(json.dumps(sorted(sys.modules)))"


def modules_after(program, *arguments):
    """Return the modules that a program loads, without those of an empty one."""
    return shown(f"{program}\n{_SHOW}", *arguments) - shown(_SHOW)


def shown(program, *arguments):
    command = [sys.executable, "-c", program, *arguments]
    return set(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1]))


def test_importing_loads_less_than_the_official_client():
    """`import pulsar_ext` loads no module that `import pulsar` does not load, except itself."""
    own, official = modules_after("import pulsar_ext"), modules_after("import pulsar")
    assert own - official == {"pulsar_ext"}


def test_error_class_loads_no_client():
    """`pulsar_ext.InvalidUse` loads the official exceptions, but no HTTP, asyncio or client."""
    loaded = modules_after("import pulsar_ext; pulsar_ext.InvalidUse")
    assert {one for one in loaded if one.startswith("pulsar_ext")} == {"pulsar_ext", "pulsar_ext.errors"}
    assert not {"httpx2", "tenacity", "asyncio"} & loaded


def test_plugin_loads_little_before_a_fixture(tmp_path):
    """A pytest run that uses no fixture of the installed plugin loads three small modules of it."""
    (tmp_path / "test_nothing.py").write_text("def test_nothing(): pass\n")
    run = "import sys, pytest; assert pytest.main(sys.argv[1:]) == 0"
    arguments = ["-q", "-p", "no:cacheprovider", str(tmp_path), "--rootdir", str(tmp_path)]
    more = modules_after(run, *arguments) - modules_after(run, *arguments, "-p", "no:pulsar_ext")
    plugin = {"plugin", "run", "fixtures"}
    assert more - {"uuid", "_uuid", "platform"} <= {
        "pulsar_ext",
        "pulsar_ext.testing",
        *(f"pulsar_ext.testing.{one}" for one in plugin),
    }


def test_type_checker_imports_equal_lazy_ones():
    """The imports for type checkers equal those of `__getattr__`."""
    tree = ast.parse(Path(pulsar_ext.__file__).read_text(encoding="utf-8"))
    seen = {
        name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module
        for alias in node.names
        for name in ([alias.asname] if alias.asname else pulsar_ext.errors.__all__)
    }
    assert seen == pulsar_ext._HOMES


def test_process_backend_loads_no_docker():
    """`start_broker` loads the modules for containers only when it starts one."""
    assert not {"docker", "testcontainers"} & modules_after("import pulsar_ext.testing.start")
