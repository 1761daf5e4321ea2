"""Calls of `pulsar-ext` in this process, because a new process takes a second of processor time to start."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import sys
import warnings

import pytest

from pulsar_ext.cli import main


def call_command(*arguments, environment=()):
    """Call the command with these arguments and variables; return its status, output and error output."""
    # Written as by a process, with the encoding of the environment.
    encoding = {**os.environ, **dict(environment)}.get("PYTHONIOENCODING", "utf-8")
    output = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    error, log = io.StringIO(), logging.getLogger("pulsar_ext.admin")
    level = log.level
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(error),
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", "Cyclopts application invoked without tokens")  # it uses sys.argv
        patch.setattr(sys, "argv", ["pulsar-ext", *arguments])
        for name, value in dict(environment).items():
            patch.setenv(name, value)
        with pytest.raises(SystemExit) as ended:
            main()
    log.setLevel(level)  # a command raises the level
    output.seek(0)
    return ended.value.code, output.read(), error.getvalue()
