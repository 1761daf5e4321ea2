"""Take the modules of scenarios apart into definitions, for the official client alone (pure).

What concerns `pulsar_ext` is left out, and so is the parameter that says which client it is: there is one.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Final

__all__ = ["Piece", "definitions", "helpers", "source_of", "steps_of"]

_PACKAGE: Final = __package__ or ""
_OFFICIAL_ONLY: Final = (
    (r"\bofficial\b", "pulsar"),
    (r"\b_?pulsar: ModuleType, ", ""),
    (r"(?m)^ +pulsar,\n", ""),
    (r"(?<=[(\s])pulsar, ", ""),
    (r"\(pulsar\)", "()"),
    (r", pulsar\)", ")"),
)
"""What becomes of the parameter."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A definition: its name, its text, the names it uses, and where it is from."""

    name: str
    text: str
    module: str

    @property
    def uses(self) -> frozenset[str]:
        """The names that it uses, as variables, as attributes and in annotations."""
        return _names_in(self.text)


@cache
def _names_in(text: str) -> frozenset[str]:
    nodes = list(ast.walk(ast.parse(textwrap.dedent(text))))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    names |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    # Annotations are text here, as under `from __future__ import annotations`.
    annotated = [node.annotation for node in nodes if isinstance(node, ast.arg) and node.annotation]
    return frozenset(names.union(*(re.findall(r"\w+", ast.unparse(one)) for one in annotated)))


def helpers(module: str) -> list[str]:
    """Give the modules of this package that a module imports from, and those that they do."""
    found: list[str] = []
    for node in ast.parse(source_of(module)).body:
        if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module not in {"_scenario", "_apart"}:
            other = f"{_PACKAGE}.{node.module}"
            found += [name for name in (other, *helpers(other)) if name not in found]
    return found


def source_of(module: str) -> str:
    """Give the text of a module."""
    return inspect.getsource(import_module(module))


@cache
def steps_of(module: str) -> tuple[Piece, ...]:
    """Give the definitions of a module of steps, without what concerns `pulsar_ext`."""
    found = definitions(_official_only(source_of(module)), module)
    return tuple(piece for piece in found if piece.name not in {"SCENARIO", "Env"})


def definitions(text: str, module: str) -> list[Piece]:
    """Give the functions, classes and constants of a module's text, a constant with the text below it."""
    lines = text.splitlines()
    found: list[Piece] = []
    body = ast.parse(text).body
    for node, following in zip(body, [*body[1:], None], strict=True):
        name = _name_of(node)
        if name is None or name == "__all__":
            continue
        first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", ()))])
        documented = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
        last = following.end_lineno if documented and following is not None else node.end_lineno
        found.append(Piece(name, "\n".join(lines[first - 1 : last]), module))
    return found


def _name_of(node: ast.stmt) -> str | None:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return node.name
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return node.target.id
    if isinstance(node, ast.Assign):
        # Several constants in one line stand and fall together.
        return ",".join(name.id for name in ast.walk(node.targets[0]) if isinstance(name, ast.Name))
    return None


def _official_only(text: str) -> str:
    """Leave out of a module what concerns `pulsar_ext`, and the parameter that says which client it is."""
    while (found := _first_branch(ast.parse(text))) is not None:
        text = _with(text, *found)
    for pattern, instead in _OFFICIAL_ONLY:
        text = re.sub(pattern, instead, text)
    return text


def _first_branch(tree: ast.Module) -> tuple[ast.AST, list[ast.stmt] | ast.expr] | None:
    """Find a branch between the clients: what it is, and what is left of it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and _answer(node.test) is not None:
            return node, node.body if _answer(node.test) else node.orelse
        if isinstance(node, ast.IfExp) and _answer(node.test):
            return node, node.body
        body = node.body if isinstance(node, ast.FunctionDef) else []
        ended = next((at for at, one in enumerate(body) if isinstance(one, ast.Return)), len(body))
        if body[ended + 1 :]:
            rest = ast.Pass(lineno=body[ended + 1].lineno, end_lineno=body[-1].end_lineno, col_offset=4)
            return rest, []
    return None


def _answer(test: ast.expr) -> bool | None:
    """Say what a condition about the client is for the official one, None for another condition."""
    text = ast.unparse(test)
    return {"pulsar is official": True, "hasattr(consumer, 'flush_acks')": False}.get(text)


def _with(text: str, node: ast.AST, left: list[ast.stmt] | ast.expr) -> str:
    """Put what is left of a branch in its place."""
    lines = text.splitlines(keepends=True)
    first, last = node.lineno - 1, node.end_lineno  # type: ignore[attr-defined]  # it has a place
    if isinstance(left, ast.expr):
        line = lines[first]
        assert isinstance(node, ast.IfExp)  # noqa: S101  # the only expression
        lines[first] = line[: node.col_offset] + ast.unparse(left) + line[node.end_col_offset :]
        return "".join(lines)
    kept = "".join(lines[left[0].lineno - 1 : left[-1].end_lineno]) if left else ""
    indent = " " * getattr(node, "col_offset", 0)
    return "".join(lines[:first]) + textwrap.indent(textwrap.dedent(kept), indent) + "".join(lines[last:])
