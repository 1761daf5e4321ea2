"""Imports of the official client and their replacements."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pulsar_ext.migrate import find_imports, main


@pytest.mark.parametrize(
    ("written", "instead"),
    [
        ("import pulsar", "import pulsar_ext as pulsar"),
        ("import pulsar as p", "import pulsar_ext as p"),
        ("import pulsar.asyncio", "import pulsar_ext.asyncio"),
        ("import pulsar.asyncio as pa", "import pulsar_ext.asyncio as pa"),
        ("from pulsar import Client, Timeout as T", "from pulsar_ext import Client, Timeout as T"),
        ("from pulsar.schema import Record", "from pulsar_ext.schema import Record"),
    ],
)
def test_official_import_is_found_with_replacement(written, instead):
    """Each form of import is found anywhere, and its replacement binds the same names."""
    [found] = find_imports(f"import os\n\ndef f():\n    {written}\n")
    assert (found.line, found.written, found.instead) == (4, written, instead)


def test_other_imports_are_ignored():
    """Imports of this library, other packages and relative modules are not reported."""
    assert (
        find_imports("import pulsar_ext as pulsar\nimport pulsar_ext.asyncio\nfrom . import pulsar\nimport pulsars")
        == []
    )


def test_command_prints_file_and_line(tmp_path):
    """The command exits with 1 and prints findings; it prints nothing for a migrated program."""
    program = tmp_path / "service" / "worker.py"
    program.parent.mkdir()
    command = [sys.executable, "-m", "pulsar_ext.migrate", str(tmp_path)]
    for text, status, output in (
        ("import pulsar_ext as pulsar\nimport pulsar.asyncio\n", 1, f"{program}:2: import pulsar.asyncio  ->  import "),
        ("import pulsar_ext as pulsar\n", 0, ""),
    ):
        program.write_text(text)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout.startswith(output), done.stderr) == (status, True, "")


def test_environments_and_hidden_directories_are_skipped(tmp_path, capsys):
    """Virtual environments and hidden directories are not searched; `--help` exits with 0."""
    for place in ("venv/lib", ".hidden", "service"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "worker.py").write_text("import pulsar\n")
    (tmp_path / "venv/pyvenv.cfg").touch()
    assert main([str(tmp_path)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        f"{tmp_path / 'service/worker.py'}:1: import pulsar  ->  import pulsar_ext as pulsar"
    ]
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
