"""Finds imports of the official client in a program: `python -m pulsar_ext.migrate PATH…`.

`import pulsar.asyncio` after `import pulsar_ext as pulsar` silently rebinds the name `pulsar` to the official package,
and nothing is migrated.
"""

from __future__ import annotations

import argparse
import ast
import os
import sys
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["OfficialImport", "find_imports", "main"]


@dataclass(frozen=True, slots=True)
class OfficialImport:
    """An import of the official package.

    Args:
        line: its line, from 1.
        written: the import in the program.
        instead: the import of this library to use.
    """

    line: int
    written: str
    instead: str


def find_imports(source: str) -> list[OfficialImport]:
    """Return the imports of the official package in a program, by line (pure).

    Raises:
        SyntaxError: the program is not Python.
    """
    return sorted(_imports(ast.parse(source)), key=lambda found: found.line)


def _imports(tree: ast.AST) -> Iterator[OfficialImport]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and not node.level and _is_official(node.module or ""):
            names = ", ".join(map(ast.unparse, node.names))
            yield OfficialImport(node.lineno, ast.unparse(node), f"from {_ours(node.module or '')} import {names}")
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if _is_official(alias.name):
                    bound = alias.asname or (None if "." in alias.name else "pulsar")
                    instead = f"import {_ours(alias.name)}" + (f" as {bound}" if bound else "")
                    yield OfficialImport(node.lineno, f"import {ast.unparse(alias)}", instead)


def _is_official(module: str) -> bool:
    return module.partition(".")[0] == "pulsar"


def _ours(module: str) -> str:
    return f"pulsar_ext{module.removeprefix('pulsar')}"


def _programs(path: Path) -> Iterator[Path]:
    """Yield a file, or the programs below a directory without hidden directories and virtual environments."""
    if not path.is_dir():
        yield path
        return
    for path_name, below, files in os.walk(path):
        directory = Path(path_name)
        below[:] = sorted(
            name for name in below if not name.startswith(".") and not (directory / name / "pyvenv.cfg").exists()
        )
        yield from (directory / name for name in sorted(files) if name.endswith(".py"))


def main(arguments: Sequence[str]) -> int:
    """Print the imports of the official package below paths; return 1 if there are any, or if a file is unreadable."""
    parser = argparse.ArgumentParser(
        prog="python -m pulsar_ext.migrate",
        description="Print each import of the official package, and what to write instead. Changes no file. "
        "Exit status: 0 if nothing was found, 1 if imports were found or a file cannot be read.",
    )
    parser.add_argument("paths", metavar="PATH", nargs="*", default=["."], help="file or directory; the default is .")
    status = 0
    for file in chain.from_iterable(_programs(Path(path)) for path in parser.parse_args(arguments).paths):
        try:
            found = find_imports(file.read_text(encoding="utf-8"))
        except (OSError, SyntaxError, ValueError) as error:
            sys.stderr.write(f"{file}: cannot be read: {getattr(error, 'strerror', None) or error}\n")
            status = 1
            continue
        for each in found:
            sys.stdout.write(f"{file}:{each.line}: {each.written}  ->  {each.instead}\n")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
