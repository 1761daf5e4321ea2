"""Finds imports that keep a program on the official client: `python -m pulsar_ext.migrate PATH…`.

`import pulsar.asyncio` after `import pulsar_ext as pulsar` binds the name `pulsar` to the official package again,
without a word: nothing was migrated.
"""

from __future__ import annotations

import ast
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["OfficialImport", "find_imports", "main"]


@dataclass(frozen=True, slots=True)
class OfficialImport:
    """An import of the official package.

    Args:
        line: its line, from 1.
        written: the import as it is.
        instead: the import of this library.
    """

    line: int
    written: str
    instead: str


def find_imports(source: str) -> list[OfficialImport]:
    """Find the imports of the official package in a program, in the order of their lines (pure).

    Raises:
        SyntaxError: it is not Python.
    """
    return sorted(_imports(ast.parse(source)), key=lambda one: one.line)


def _imports(tree: ast.AST) -> Iterator[OfficialImport]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and not node.level and _is_official(node.module or ""):
            names = ", ".join(map(ast.unparse, node.names))
            yield OfficialImport(node.lineno, ast.unparse(node), f"from {_ours(node.module or '')} import {names}")
        elif isinstance(node, ast.Import):
            for one in node.names:
                if _is_official(one.name):
                    bound = one.asname or (None if "." in one.name else "pulsar")
                    instead = f"import {_ours(one.name)}" + (f" as {bound}" if bound else "")
                    yield OfficialImport(node.lineno, f"import {ast.unparse(one)}", instead)


def _is_official(module: str) -> bool:
    return module.partition(".")[0] == "pulsar"


def _ours(module: str) -> str:
    return f"pulsar_ext{module.removeprefix('pulsar')}"


def main(arguments: Iterable[str]) -> int:
    """Print the imports of the official package below paths; return 1 if there are any, or a file cannot be read."""
    status = 0
    for path in map(Path, arguments):
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            try:
                found = find_imports(file.read_text(encoding="utf-8"))
            except (OSError, SyntaxError, ValueError) as error:
                sys.stderr.write(f"{file}: cannot be read: {error}\n")
                status = 1
                continue
            for one in found:
                sys.stdout.write(f"{file}:{one.line}: {one.written}  ->  {one.instead}\n")
                status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["."]))
