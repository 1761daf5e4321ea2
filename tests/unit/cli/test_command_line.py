"""The command as a whole: its sub-commands, its variables, its completion, and what it says of failed attempts."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pulsar_ext.cli import command_line

COMMANDS = ("broker", "doctor", "ids", "ranges", "reproduce", "skip", "spark")


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_shells_complete_every_command(shell):
    """The completion of either shell knows every sub-command and its options."""
    script = command_line().generate_completion(shell=shell)
    assert all(name in script for name in (*COMMANDS, "--dry-run", "--admin-url"))


@pytest.mark.parametrize("arguments", [["--help"], *([name, "--help"] for name in COMMANDS)])
def test_help_names_the_whole_command(arguments, capsys):
    """The usage line can be typed as it stands."""
    app = command_line()
    app(arguments, result_action="return_value")
    assert "Usage: pulsar-ext" in capsys.readouterr().out


@pytest.mark.parametrize("names", [("PULSAR_URL", "PULSAR_ADMIN_URL"), ("PULSAR_EXT_URL", "PULSAR_EXT_ADMIN_URL")])
def test_a_port_where_nothing_listens_is_told_in_one_line(names, monkeypatch):
    """Under the variables' common names and under the older ones; the line says how often it was tried."""
    for name in ("PULSAR_URL", "PULSAR_ADMIN_URL", "PULSAR_EXT_URL", "PULSAR_EXT_ADMIN_URL"):
        monkeypatch.delenv(name, raising=False)
    url, admin_url = names
    monkeypatch.setenv(url, "pulsar://localhost:2")
    monkeypatch.setenv(admin_url, "http://localhost:1")
    done = subprocess.run(
        [sys.executable, "-c", "from pulsar_ext.cli import main; main()", "skip", "t", "s", "1"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert "http://localhost:1/" in line
    assert "tried 4 times" in line
