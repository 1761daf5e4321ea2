"""Show that the Python of two revisions differs only in names, strings, comments, and the order of imports.

python tests/words/same_code.py main           # main beside the working tree
python tests/words/same_code.py main pulsar_ext/ack
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


class _Shape(ast.NodeTransformer):
    """Replace names and strings by one letter, and drop docstrings and imports."""

    def visit(self, node: ast.AST) -> ast.AST | None:
        """Return the shape of a node, or None for what is dropped."""
        if isinstance(node, ast.Import | ast.ImportFrom):
            return None
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str)):
            return ast.Constant("")
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant | ast.JoinedStr):
            return None
        for field, value in ast.iter_fields(node):
            if isinstance(value, str) and field != "type_comment":
                setattr(node, field, "x")
            elif field == "names" and isinstance(value, list):
                setattr(node, field, ["x"] * len(value))
        return self.generic_visit(node)


def shape(source: str) -> list[str]:
    """Return what the code does, a line a statement, without names and strings."""
    return ast.dump(_Shape().visit(ast.parse(source)), indent=1).split("\n")


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def main(revision: str, *paths: str) -> int:
    """Print each file whose code differs from the revision's; return 1 if there are any."""
    rows = _git("diff", "--name-status", "--find-renames=30%", revision, "--", *(paths or (".",))).splitlines()
    differ = compared = 0
    for row in rows:
        status, *names = row.split("\t")
        if not names[-1].endswith((".py", ".pyi")):
            continue
        if status[0] in "AD":
            print(f"{names[-1]}: {'added' if status == 'A' else 'deleted'}")
            continue
        compared += 1
        before, after = shape(_git("show", f"{revision}:{names[0]}")), shape((ROOT / names[-1]).read_text())
        if before != after:
            differ += 1
            first = next((i for i, pair in enumerate(zip(before, after, strict=False)) if pair[0] != pair[1]), -1)
            print(f"{names[-1]}: the code differs, near {after[first].strip()!r}")
    print(f"{compared} files compared, {differ} differ in more than names and strings")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
