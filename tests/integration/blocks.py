"""Runs the code blocks of a page one after the other, as a reader would, against one broker.

Python blocks share a namespace; `await` may stand in them. A block with tests in it is given to pytest. Shell blocks
run in bash. An address of the documents, `localhost:6650` or `localhost:8080`, is replaced by the broker's. A page
prepares what it needs in `<details>`, or, if no reader needs it, in a comment, `<!-- invisible-code-block: python
… -->`. It says `<!-- skip: next -->` before what cannot run.
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
    """A page whose blocks run.

    Args:
        path: the page.
        broker: a broker.
        directory: where shell blocks and tests run.
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
        """Run every block; give how many."""
        examples = list(self._document.examples())
        try:
            for example in examples:
                example.evaluate()
        finally:  # the next page has its own
            for value in self._document.namespace.values():
                if isinstance(value, pulsar.Client):
                    value.close()
        return len(examples)

    def _here(self, text):
        """Put the broker's addresses in place of the documents'."""
        for address, url in (("localhost:6650", self._broker.service_url), ("localhost:8080", self._broker.admin_url)):
            text = re.sub(rf"\b{address}\b", url.partition("://")[2], text)
        return text

    def _python(self, example):
        source = self._here(str(example.parsed))
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
        self._done([sys.executable, "-m", "pytest", *arguments])

    def _shell(self, example):
        script = self._here(str(example.parsed))
        self._done(["bash", "-euo", "pipefail", "-c", _COMMAND + script])

    def _done(self, command):
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
        finally:  # whatever it has started ends with it
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        assert process.returncode == 0, f"{command[-1]}\n{output[-5000:]}"


def _loaded_plugins():
    """The plugins that pytest loads by itself."""
    return {one.value for one in entry_points(group="pytest11")}
