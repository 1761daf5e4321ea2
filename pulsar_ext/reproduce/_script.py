"""Print a scenario as a program of its own, which shows the defect with the official client alone (pure).

The program is made of the scenario's own code: what its steps need is gathered from this package, by functions and by
methods, and what concerns `pulsar_ext` is left out.
"""

from __future__ import annotations

import ast
import re
import sys
import textwrap
from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from ._pieces import Piece, definitions, helpers, source_of, steps_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ._scenario import Scenario

__all__ = ["to_script"]

_PACKAGE: Final = __package__ or ""
_PARTS: Final = f"{_PACKAGE}._standalone"
_NEEDS: Final = {
    "plain": "a broker with its default settings",
    "small-chunks": "a broker with maxMessageSize=102400 (and nettyMaxFrameSizeBytes=112640), so that chunks are small",
    "batch-index-acks": "a broker with acknowledgmentAtBatchIndexLevelEnabled=true, the default since 4.2",
    "dedup": "a broker with its default settings; deduplication is turned on for the program's namespace",
}


def to_script(scenario: Scenario) -> str:
    """Give the program of a scenario."""
    home = scenario.run.__module__
    modules = [home, *helpers(home)]
    steps = _without_clashes(modules)
    parts = [piece for piece in steps_of(f"{_PACKAGE}._scenario") if piece.name == "Counts"]
    parts += definitions(source_of(_PARTS), _PARTS)
    wanted = _closure([*parts, *steps], "run", "main")
    start = "    main()"
    if "apart" in wanted:
        wanted |= _closure([*parts, *steps], "run", "main", "be_apart")
        start = '    be_apart() if sys.argv[1:2] == ["--apart"] else main()'
    body = [piece.text for piece in steps if piece.name in wanted]
    body += ["# What the steps above use.", *(_shaken(piece, wanted) for piece in parts if piece.name in wanted)]
    text = _joined([f"DEDUPLICATION = {scenario.profile == 'dedup'}", *body])
    text = re.sub(r"  # noqa: .*", "", text)  # notes to this project's own checks
    imports = _imports([*modules, _PARTS, f"{_PACKAGE}._scenario"], text)
    return f'{_docstring(scenario)}\n\n{imports}\n\n{text}\n\n\nif __name__ == "__main__":\n{start}\n'


def _docstring(scenario: Scenario) -> str:
    """Give the text above the program."""
    defect = (import_module(scenario.run.__module__).__doc__ or "").strip()
    return "\n".join(
        [
            f'"""{defect}',
            "",
            *textwrap.wrap(f"What should happen: {scenario.claim}.", 110),
            "",
            *textwrap.wrap(
                f"Needs pulsar-client, seen with {version('pulsar-client')}, and {_NEEDS[scenario.profile]}.", 110
            ),
            "",
            f"    python {scenario.name}.py [pulsar://localhost:6650 [http://localhost:8080]]",
            "",
            "It prints what became of the messages, and ends with status 1 if the defect is there.",
            '"""',
        ]
    )


def _without_clashes(modules: list[str]) -> list[Piece]:
    """Give the steps of modules; where a helper's constant has a name that is taken, it gets another one."""
    taken: set[str] = set()
    steps: list[Piece] = []
    for module in modules:
        mine = steps_of(module)
        names = {name for piece in mine for name in piece.name.split(",")}
        prefix = f"_{module.rpartition('.')[2].strip('_').upper()}"
        for piece in mine:
            text, name = piece.text, piece.name
            for clash in names & taken:
                text, name = (re.sub(rf"\b{clash}\b", f"{prefix}{clash}", one) for one in (text, name))
            steps.append(Piece(name, text, module))
        taken |= names
    return steps


def _closure(known: list[Piece], *roots: str) -> set[str]:
    """Give the names that some names need: definitions, and the methods of classes."""
    used = {"__init__", "__enter__", "__exit__", "__str__", "clean", *roots}
    while True:
        wanted = [piece for piece in known if used & set(piece.name.split(","))]
        more = used.union(*(_uses(piece, used) for piece in wanted))
        if more == used:
            return used | {piece.name for piece in wanted}
        used = more


def _uses(piece: Piece, used: set[str]) -> set[str] | frozenset[str]:
    """Give the names that a definition uses; of a class, those of the methods that are used."""
    tree = ast.parse(piece.text).body[0]
    if not isinstance(tree, ast.ClassDef):
        return piece.uses
    methods = [one for one in tree.body if isinstance(one, ast.FunctionDef) and one.name in used]
    return set[str]().union(*(Piece(one.name, ast.unparse(one), piece.module).uses for one in methods))


def _shaken(piece: Piece, wanted: set[str]) -> str:
    """Give a class with the methods that are needed."""
    tree = ast.parse(piece.text).body[0]
    if not isinstance(tree, ast.ClassDef):
        return piece.text
    lines = piece.text.splitlines()
    for one in reversed(tree.body):
        if isinstance(one, ast.FunctionDef) and one.name not in wanted:
            first = min([one.lineno, *(decorator.lineno for decorator in one.decorator_list)])
            del lines[first - 2 if not lines[first - 2].strip() else first - 1 : one.end_lineno]
    return "\n".join(lines)


def _imports(modules: Iterable[str], text: str) -> str:
    """Give the imports of the standard library that a text needs, and those of the official client."""
    words = set(re.findall(r"\w+", text))
    plain: set[str] = set()
    froms: dict[str, set[str]] = {}
    for module in modules:
        for node in ast.walk(ast.parse(source_of(module))):
            if isinstance(node, ast.Import):
                plain |= {f"import {one.name}" for one in node.names if _needed(one.name, text)}
            elif isinstance(node, ast.ImportFrom) and not node.level and node.module != "__future__":
                names = {one.name for one in node.names if one.name in words} - {"TYPE_CHECKING"}
                if names and node.module and node.module.partition(".")[0] in sys.stdlib_module_names:
                    froms[node.module] = froms.get(node.module, set()) | names
    lines = [f"from {one} import {', '.join(sorted(names))}" for one, names in sorted(froms.items())]
    theirs = ["import pulsar", *(["import pulsar.asyncio"] if "pulsar.asyncio" in text else [])]
    own = sorted(one for one in plain if "pulsar" not in one)
    return "\n".join(["from __future__ import annotations", "", *own, *lines, "", *theirs])


def _needed(module: str, text: str) -> bool:
    return re.search(rf"\b{re.escape(module)}\.", text) is not None


def _joined(parts: list[str]) -> str:
    """Put definitions one below the other, constants close together."""
    text = ""
    for part in parts:
        constant = not part.lstrip().startswith(("def ", "class ", "@", "async ", "#"))
        previous = text.rstrip().rpartition("\n")[2]
        close = constant and text and not previous.startswith((" ", "#")) and previous
        text += ("\n" if close else "\n\n\n" if text else "") + part
    return text
