"""Imports that keep a program on the official client are found, with what to write instead."""

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
def test_an_official_import_is_found_with_its_replacement(written, instead):
    """Each form of import is found, wherever it stands, and its replacement binds the same names."""
    [found] = find_imports(f"import os\n\ndef f():\n    {written}\n")
    assert (found.line, found.written, found.instead) == (4, written, instead)


def test_other_imports_are_not_found():
    """This library's own imports, other packages and relative modules stay as they are."""
    assert (
        find_imports("import pulsar_ext as pulsar\nimport pulsar_ext.asyncio\nfrom . import pulsar\nimport pulsars")
        == []
    )


def test_the_command_names_file_and_line(tmp_path):
    """The command exits 1 and names what it found; of a program that is migrated it says nothing."""
    program = tmp_path / "service" / "worker.py"
    program.parent.mkdir()
    command = [sys.executable, "-m", "pulsar_ext.migrate", str(tmp_path)]
    for text, status, said in (
        ("import pulsar_ext as pulsar\nimport pulsar.asyncio\n", 1, f"{program}:2: import pulsar.asyncio  ->  import "),
        ("import pulsar_ext as pulsar\n", 0, ""),
    ):
        program.write_text(text)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout.startswith(said), done.stderr) == (status, True, "")


def test_what_is_installed_is_not_searched(tmp_path, capsys):
    """A virtual environment and hidden directories are no part of the program; --help says how to call it."""
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
