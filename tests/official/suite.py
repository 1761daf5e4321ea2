"""Official client's test suite, run test by test: each in a fresh process, with either client."""

from __future__ import annotations

import ast
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from xml.etree import ElementTree as ET

from suite_broker import suite_broker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["CLIENTS", "FILES", "STATUSES", "Outcome", "run_tests", "test_names"]

CLIENTS: Final = ("pulsar", "pulsar_ext")
STATUSES: Final = ("passed", "failed", "skipped", "crashed", "timeout")
# The suite's other two files need a container engine and an account with an identity provider.
FILES: Final = (
    "pulsar_test.py",
    "reader_test.py",
    "asyncio_test.py",
    "schema_test.py",
    "table_view_test.py",
    "custom_logger_test.py",
    "debug_logger_test.py",
    "interrupted_test.py",
)

_PLAIN_IMPORT: Final = re.compile(r"^(\s*)import pulsar\b(?![.,]| as )", re.MULTILINE)
_NAMED_IMPORT: Final = re.compile(r"^(\s*from )pulsar(?=[. ])", re.MULTILINE)
_OTHER_IMPORT: Final = re.compile(r"^\s*import (?:.*,\s*)?pulsar(?:[.,]| as )", re.MULTILINE)
_DETAIL_CHARACTERS: Final = 2000


@dataclass(frozen=True)
class Outcome:
    """Result of one run of a test, one of `STATUSES`, and its output if it neither passed nor was skipped."""

    status: str
    detail: str = ""
    seconds: float = 0.0


def test_names(file: Path) -> list[str]:
    """List the tests of a file in order, as `file.py::Class::test_name`."""
    return [
        f"{file.name}::{group.name}::{test.name}"
        for group in ast.parse(file.read_text(encoding="utf-8")).body
        if isinstance(group, ast.ClassDef)
        for test in group.body
        if isinstance(test, ast.FunctionDef | ast.AsyncFunctionDef) and test.name.startswith("test")
    ]


def run_tests(
    tests: Path, client: str, names: Iterable[str], timeout: float, report: Callable[[str, Outcome], None]
) -> dict[str, Outcome]:
    """Run tests with one client on a fresh broker.

    Args:
        tests: the suite's directory `tests`; it is copied.
        client: one of `CLIENTS`.
        names: as returned by `test_names`.
        timeout: seconds for each test.
        report: called with each outcome immediately.

    Raises:
        BrokerStartError: the broker did not start.
    """
    outcomes = {}
    with tempfile.TemporaryDirectory(prefix="official-suite-") as scratch:
        copy = Path(scratch, "tests")
        shutil.copytree(tests, copy)
        if client != "pulsar":
            for file in copy.glob("*_test.py"):
                file.write_text(_with_client(file.read_text(encoding="utf-8"), client), encoding="utf-8")
        with suite_broker(copy):
            for name in names:
                outcomes[name] = _run_test(copy, name, timeout)
                report(name, outcomes[name])
    return outcomes


def _with_client(source: str, client: str) -> str:
    """Replace every import of `pulsar` in a test file by one of `client`."""
    source = _PLAIN_IMPORT.sub(rf"\1import {client} as pulsar", source)
    source = _NAMED_IMPORT.sub(rf"\1{client}", source)
    if unknown := _OTHER_IMPORT.search(source):
        raise SystemExit(f"unsupported import of pulsar: {unknown[0].strip()!r}")
    return source


def _run_test(tests: Path, name: str, timeout: float) -> Outcome:
    result = tests.parent / "result.xml"
    result.unlink(missing_ok=True)
    # No plugin of this environment, even our own: the official half must not load our library.
    environment = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
    environment |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONFAULTHANDLER": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={result}", name]
    began = time.monotonic()
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        process = subprocess.Popen(
            [*command, "-c", os.devnull, f"--rootdir={tests}"],
            cwd=tests,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            # End all processes that the test left running.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        text = output.read()[-_DETAIL_CHARACTERS:]
    seconds = time.monotonic() - began
    if code is None:
        return Outcome("timeout", f"still running after {timeout:.0f} s\n{text}", seconds)
    # A process that dies at its end has crashed, even if pytest reported success before.
    if code < 0 or not result.is_file():
        return Outcome("crashed", f"exit status {code}\n{text}", seconds)
    return _outcome_of(result, text, seconds)


def _outcome_of(result: Path, text: str, seconds: float) -> Outcome:
    cases = list(ET.parse(result).getroot().iter("testcase"))
    problems = [child for case in cases for child in case if child.tag in ("failure", "error")]
    if problems or not cases:
        detail = problems[0].text or problems[0].get("message", "") if problems else text
        return Outcome("failed", detail[-_DETAIL_CHARACTERS:], seconds)
    if any(child.tag == "skipped" for case in cases for child in case):
        return Outcome("skipped", seconds=seconds)
    return Outcome("passed", seconds=seconds)
