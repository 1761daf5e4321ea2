"""Execution of the code blocks of a page in order, as a reader would, with one broker.

Python blocks share a namespace and may contain `await`. A block with tests is run by pytest. Shell blocks run in bash.
The documents' addresses `localhost:6650` and `localhost:8080` are replaced by the broker's. A page prepares what it
needs in `<details>`, or in a comment if readers do not need it: `<!-- invisible-code-block: python … -->`. It has
`<!-- skip: next -->` before a block that cannot run.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import os
import re
import signal
import subprocess
import sys
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

import pulsar
from sybil import Sybil
from sybil.parsers.markdown import CodeBlockParser, SkipParser

ROOT = Path(__file__).parents[2]
_SECONDS = 300
_COMMAND = f"""pulsar-ext() {{ {sys.executable} -c 'from pulsar_ext.cli import main; main()' "$@"; }}
python() {{ {sys.executable} "$@"; }}
pytest() {{ {sys.executable} -m pytest "$@"; }}
"""


class Page:
    """A page whose blocks can be run.

    Args:
        path: the page.
        broker: the broker.
        directory: the working directory of shell blocks and tests.
    """

    def __init__(self, path, broker, directory):
        self._broker, self._directory = broker, directory
        parsers = [CodeBlockParser("python", self._python), CodeBlockParser("bash", self._shell), SkipParser()]
        self._document = Sybil(parsers).parse(path)
        self._document.namespace["no_spark"] = find_spec("pyspark") is None
        self._environment = {
            **os.environ,
            "PULSAR_URL": broker.service_url,
            "PULSAR_ADMIN_URL": broker.admin_url,
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        }

    def run(self):
        """Run every block, and return their number."""
        examples = list(self._document.examples())
        try:
            for example in examples:
                example.evaluate()
        finally:  # the next page has its own clients
            for value in self._document.namespace.values():
                if isinstance(value, pulsar.Client):
                    value.close()
        return len(examples)

    def _with_addresses(self, text):
        """Replace the documents' addresses with the broker's."""
        for address, url in (("localhost:6650", self._broker.service_url), ("localhost:8080", self._broker.admin_url)):
            text = re.sub(rf"\b{address}\b", url.partition("://")[2], text)
        return text

    def _python(self, example):
        source = self._with_addresses(str(example.parsed))
        if re.search(r"^(async )?def test_", source, re.MULTILINE):
            self._tests(source)
            return
        code = compile(
            "\n" * example.line + source,
            str(example.path),
            "exec",
            flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT,
            dont_inherit=True,
        )
        namespace = example.namespace
        namespace.setdefault("__name__", "page")
        if code.co_flags & inspect.CO_COROUTINE:
            asyncio.run(eval(code, namespace))
        else:
            exec(code, namespace)

    def _tests(self, source):
        file = self._directory / "test_page.py"
        file.write_text(f"import pytest\nimport pulsar_ext as pulsar\n{source}")
        arguments = ["-q", "-p", "no:cacheprovider", "-o", "addopts=", str(file)]
        if "pulsar_ext.testing.plugin" not in _loaded_plugins():
            arguments += ["-p", "pulsar_ext.testing.plugin"]
        self._run_command([sys.executable, "-m", "pytest", *arguments])

    def _shell(self, example):
        script = self._with_addresses(str(example.parsed))
        self._run_command(["bash", "-euo", "pipefail", "-c", _COMMAND + script])

    def _run_command(self, command):
        process = subprocess.Popen(
            command,
            cwd=self._directory,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=_SECONDS)
        finally:  # also ends the processes that it has started
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        assert process.returncode == 0, f"{command[-1]}\n{output[-5000:]}"


def _loaded_plugins():
    """Return the plugins that pytest loads by itself."""
    return {one.value for one in entry_points(group="pytest11")}
