"""The command as a whole: sub-commands, environment variables, completion, and errors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from commands import call_command

from pulsar_ext.cli import command_line

COMMANDS = ("admin", "broker", "doctor", "ids", "ranges", "reproduce", "skip", "spark")
MAIN = [sys.executable, "-c", "from pulsar_ext.cli import main; main()"]


def test_shells_complete_every_command():
    """The completion scripts have every sub-command and its options."""
    app = command_line()
    for shell in ("bash", "zsh"):
        script = app.generate_completion(shell=shell)
        assert all(name in script for name in (*COMMANDS, "--dry-run", "--admin-url"))


@pytest.mark.parametrize("arguments", [["--help"], *([name, "--help"] for name in COMMANDS)])
def test_help_names_the_whole_command(arguments, capsys):
    """The usage line starts with the full command."""
    app = command_line()
    app(arguments, result_action="return_value")
    assert "Usage: pulsar-ext" in capsys.readouterr().out


@pytest.mark.parametrize("names", [("PULSAR_URL", "PULSAR_ADMIN_URL"), ("PULSAR_EXT_URL", "PULSAR_EXT_ADMIN_URL")])
def test_closed_port_is_reported_in_one_line(names, monkeypatch):
    """The URLs of both sets of variables are used, and the error has the number of attempts in one line."""
    for name in ("PULSAR_URL", "PULSAR_ADMIN_URL", "PULSAR_EXT_URL", "PULSAR_EXT_ADMIN_URL"):
        monkeypatch.delenv(name, raising=False)
    url, admin_url = names
    monkeypatch.setenv(url, "pulsar://localhost:2")
    monkeypatch.setenv(admin_url, "http://localhost:1")
    status, _, error = call_command("skip", "t", "s", "1")
    assert status == 1
    [line] = error.splitlines()
    assert "http://localhost:1/" in line
    assert "tried 4 times" in line


@pytest.mark.parametrize(
    ("line", "status", "words"),
    [
        ("skip t s 1 --url foo://x --admin-url http://localhost:1", 1, "Invalid scheme: foo"),
        ("ranges plan t 3 --png /nowhere/at.png --admin-url http://localhost:1", 1, "pass another --png"),
        ("ranges check t s --html /nowhere/at.html --admin-url http://localhost:1", 1, "pass another --html"),
        ("look t --html /nowhere/at.html --admin-url http://localhost:1", 1, "pass another --html"),
        ("look t --watch --every inf --admin-url http://localhost:1", 1, "--every"),
        # The doctor's statuses 1 and 2 are those of findings.
        ("doctor --watch --every nan --admin-url http://localhost:1", 3, "--every"),
        ("doctor --max-requests 0", 3, "max_requests"),
        ("doctor --certificate only", 3, "pass both --certificate and --key"),
    ],
)
def test_invalid_arguments_are_reported_in_one_line(line, status, words):
    """The error comes before any request, with the command's status for failures."""
    *done, error = call_command(*line.split())
    assert done == [status, ""]
    [error] = error.splitlines()
    assert words in error


@pytest.mark.parametrize(("command", "status"), [("doctor", 3), ("look", 2)])
def test_unknown_option_is_a_usage_error(command, status):
    """An unknown option has the status of a failure, not of a finding."""
    *done, error = call_command(command, "t", "--nonsense")
    assert done == [status, ""]
    assert "--nonsense" in error


@pytest.mark.parametrize("loaded", ["cyclopts", "rich", "pulsar", "pulsar_ext.cli.spark"])
def test_ctrl_c_during_imports_is_quiet(loaded):
    """Ctrl-C during any import ends the command with status 130 and without output."""
    program = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
class Interrupting:
    def find_spec(self, name, *_):
        if name == sys.argv[2]:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
from pulsar_ext.cli import main
main()
"""
    command = [sys.executable, "-c", program, "ids", loaded]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_closed_output_pipe_is_quiet():
    """A command whose output pipe is closed ends without a stack trace."""
    with subprocess.Popen([*MAIN, "ranges", "split", "65536"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as split:
        assert split.stdout.readline() == b"0-0\n"
        split.stdout.close()
        assert split.stderr.read() == b""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no file that is full")
def test_full_disk_is_reported_in_one_line():
    """Output that cannot be written is an error of one line."""
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([*MAIN, "ids", "1", "2"], stdout=full, stderr=subprocess.PIPE, timeout=60, check=False)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1


def test_unencodable_characters_are_escaped():
    """Characters that the output's encoding lacks are written as escapes, also in JSON."""
    as_ascii, as_utf8 = {"PYTHONIOENCODING": "ascii"}, {"PYTHONIOENCODING": "utf-8"}
    assert call_command("ranges", "slot", "中文", environment=as_ascii)[1] == "29079 \\u4e2d\\u6587\n"
    _, printed, _ = call_command("ranges", "slot", "中文", "é", "--json", environment=as_ascii)
    assert [one["key"] for one in json.loads(printed)] == ["中文", "é"]
    assert "中文" in call_command("ranges", "slot", "中文", "--json", environment=as_utf8)[1]


@pytest.mark.skipif(os.name != "posix", reason="only POSIX systems pass arguments as bytes")
def test_undecodable_key_is_reported_in_one_line():
    """A key that is not valid text is an error of one line that names --base64."""
    status, _, error = call_command("ranges", "slot", os.fsdecode(b"\xff"))
    assert status == 1
    [error] = error.splitlines()
    assert "--base64" in error


def test_scenarios_are_listed_as_json():
    """`reproduce --list --json` prints names, claims and profiles."""
    status, out, _ = call_command("reproduce", "--list", "--json")
    assert status == 0
    assert {"name", "claim", "profile"} == set.union(*(set(one) for one in json.loads(out)))
