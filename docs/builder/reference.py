"""Write the pages of the reference: names, commands, options and fixtures, each from its definition."""

from __future__ import annotations

import argparse
import ast
import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pulsar

from pulsar_ext import errors
from pulsar_ext.cli import command_line
from pulsar_ext.testing import fixtures, plugin

from .names import PAGES, members_of, names_of_official, names_on

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["VARIABLES", "write_reference"]

VARIABLES = {
    "PULSAR_URL": "the broker that commands and the pytest plugin use",
    "PULSAR_ADMIN_URL": "the admin REST API, for clients, commands and the pytest plugin",
    "PULSAR_TOKEN": "a token to authenticate commands and the pytest plugin with; clients take one as an argument",
    "PULSAR_EXT_TRUST_CERTS": "`--trust-certs` of commands: file of the authority that signs the broker's certificate",
    "PULSAR_EXT_CERTIFICATE": "`--certificate` of commands: the file of a client certificate",
    "PULSAR_EXT_KEY": "`--key` of commands: the file of its key",
    "PULSAR_EXT_TO_TOKEN": "a token for the cluster of the target of `pulsar-ext copy`",
    "PULSAR_EXT_NATIVE": "`0` disables the native core; `1` makes its absence an `ImportError`",
    "PULSAR_EXT_BACKEND": "the back end of test brokers: `auto`, `docker` or `process`",
    "PULSAR_EXT_PROFILE": "the profile of the fixture `pulsar_broker`",
    "PULSAR_EXT_THROUGH": "the kind of broker of each profile: `standalone`, `mtls` or `cluster`",
    "PULSAR_EXT_PULSAR_VERSION": "the version of test brokers",
    "PULSAR_EXT_IMAGE": "the image of test brokers in containers",
    "PULSAR_EXT_CACHE": "the directory of the jars of test brokers",
    "PULSAR_EXT_URL": "older name of `PULSAR_URL`",
    "PULSAR_EXT_ADMIN_URL": "older name of `PULSAR_ADMIN_URL`, for commands and the pytest plugin",
    "PULSAR_EXT_TOKEN": "older name of `PULSAR_TOKEN`",
}
"""The environment variables."""


def write_reference(target: Path) -> None:
    """Write every page of the reference into a folder."""
    target.mkdir(parents=True, exist_ok=True)
    contents = ["# Reference", "", "Every public name, error, fixture, command and option, from the code itself.", ""]
    for page, (title, _) in PAGES.items():
        names = names_on(page)
        contents += [f"## [{title}]({page}.md)", "", ", ".join(f"[{_short(n)}]({page}.md#{n})" for n in names), ""]
        names.sort(key=lambda name: not name.endswith(f".{title}"))  # the class in the page's title first
        parts = [f"# {title}", "", *_before(page), *map(_entry, names)]
        (target / f"{page}.md").write_text("\n".join(parts), encoding="utf-8")
    contents += [
        "## More",
        "",
        "- [Commands](commands.md) of `pulsar-ext`",
        "- [Options](options.md) of pytest and of Spark, and variables of the environment",
        "- [Names](official.md) that are the official client's own",
        "",
    ]
    (target / "index.md").write_text("\n".join(contents), encoding="utf-8")
    (target / "commands.md").write_text(_commands(), encoding="utf-8")
    (target / "options.md").write_text(_options(), encoding="utf-8")
    (target / "official.md").write_text(_official(), encoding="utf-8")


def _entry(name: str) -> str:
    """Return the entry of a name, which mkdocstrings expands."""
    members = members_of(name)
    options = "" if members is None else f"    options:\n      members: [{', '.join(members)}]\n"
    return f"::: {name}\n{options}"


def _short(name: str) -> str:
    return f"`{name.rpartition('.')[2]}`"


def _before(page: str) -> list[str]:
    """Return the lines of a page before its names."""
    if page == "errors":
        tree = inspect.cleandoc(errors.__doc__ or "")
        intro, _, drawn = tree.partition("::\n\n")
        return [f"{intro}:", "", "~~~~text", inspect.cleandoc(drawn), "~~~~", ""]
    if page == "testing":
        return ["## Fixtures of the pytest plugin", "", *_fixtures(fixtures)]
    return []


def _fixtures(module: ModuleType) -> list[str]:
    """Return a paragraph for each fixture of a module."""
    lines: list[str] = []
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("pulsar_"):
            scope = next((_scope(one) for one in node.decorator_list if _scope(one)), "test")
            lines += [f"### `{node.name}` {{ #{node.name} }}", "", f"Scope: {scope}. {ast.get_docstring(node)}", ""]
    return lines


def _scope(decorator: ast.expr) -> str:
    if isinstance(decorator, ast.Call):
        for keyword in decorator.keywords:
            if keyword.arg == "scope" and isinstance(keyword.value, ast.Constant):
                return str(keyword.value.value)
    return ""


def _commands() -> str:
    """Return the page of all commands, with the text of their help."""
    text: str = command_line().generate_docs(output_format="markdown", heading_level=1)
    return text.replace(" -m docs.builder", "")  # cyclopts counts it as part of the command


def _options() -> str:
    """Return the page of options and variables."""
    lines = ["# Options and variables", "", "## Environment", "", "| variable | meaning |", "|---|---|"]
    lines += [f"| `{name}` | {meaning} |" for name, meaning in VARIABLES.items()]
    lines += ["", "## pytest", "", "| option | meaning |", "|---|---|"]
    lines += [f"| `{' '.join(names)}` | {meaning} |" for names, meaning in _pytest_options()]
    _, _, text = (Path(__file__).parents[1] / "spark.md").read_text(encoding="utf-8").partition("<!-- options: ")
    table = [line for line in text.split("\n\n")[0].splitlines() if line.startswith("|")]
    return "\n".join([*lines, "", "## Spark", "", *table, "", ""])


def _pytest_options() -> list[tuple[tuple[str, ...], str]]:
    """Return the options of the pytest plugin."""
    parser = _Options()
    plugin.pytest_addoption(parser)  # type: ignore[arg-type]  # it only adds
    return parser.found


class _Options(argparse.Namespace):
    """A substitute for pytest's parser that collects the options."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[tuple[str, ...], str]] = []

    def getgroup(self, *_: Any) -> _Options:
        return self

    def addoption(self, *names: str, **details: Any) -> None:
        choices = f"={'/'.join(details['choices'])}" if "choices" in details else "=…"
        self.found.append((tuple(name + choices for name in names), details["help"]))


def _official() -> str:
    """Return the page of the official client's names."""
    lines = [
        "# From the official client",
        "",
        "These names of `pulsar_ext` are the objects of `pulsar`, unchanged.",
        "",
        "| name | description |",
        "|---|---|",
    ]
    for name in names_of_official():
        value = getattr(pulsar, name)
        first = "a module" if inspect.ismodule(value) else (inspect.getdoc(value) or "").partition("\n")[0]
        kind = "an error" if inspect.isclass(value) and issubclass(value, Exception) and not first else first
        lines.append(f"| `{name}` | {kind.replace('|', '/')} |")
    return "\n".join([*lines, ""])
