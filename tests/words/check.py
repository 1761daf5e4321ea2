"""Check the words of code, tests and documents against `words.toml`, and the form of docstrings and of tests' names.

python tests/words/check.py                # everything; exit status 1 if there are findings
python tests/words/check.py pulsar_ext/ack README.md
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
RULES = tomllib.loads((Path(__file__).parent / "words.toml").read_text())
WORDS = [
    (re.compile(rule["not"], re.ASCII if rule.get("case") else re.IGNORECASE), rule["say"]) for rule in RULES["words"]
]
NAMES = [(re.compile(rule["not"]), rule["say"]) for rule in RULES["names"]]
FIRST_LINE = re.compile(RULES["docstrings"]["not"])
LONGEST_TEST_NAME = 60
_FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"``?[^`\n]+``?|(?<=\]\()[^)\n]+")
_PROSE = re.compile(r"\w+\W+\w+\W+\w+")
"""Three words: a string constant with fewer is a key or a value."""


class Piece(NamedTuple):
    """Text of one kind, and the line that it begins in."""

    kind: str
    line: int
    text: str


class Finding(NamedTuple):
    """A place that breaks a rule."""

    path: str
    line: int
    text: str
    say: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text!r}: {self.say}"


def pieces_of_python(source: str) -> Iterator[Piece]:
    """Yield comments, docstrings, strings that are prose, and the names that the source defines."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not token.string.startswith("# type:"):
            yield Piece("prose", token.start[0], token.string)
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _docstring(node)
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield Piece("name", node.lineno, node.name)
        elif isinstance(node, ast.arg):
            yield Piece("name", node.lineno, node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield Piece("name", node.lineno, node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield Piece("name", node.lineno, node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _PROSE.search(node.value):
            yield Piece("prose", node.lineno, node.value)


def _docstring(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Piece]:
    text = ast.get_docstring(node)
    if text is not None:
        line = node.body[0].lineno
        yield Piece("docstring", line, text.split("\n", 1)[0])


def pieces_of_markdown(source: str) -> Iterator[Piece]:
    """Yield the prose, without blocks of code, one piece a line."""
    blank = _FENCE.sub(lambda block: "\n" * block[0].count("\n"), source)
    for line, text in enumerate(blank.split("\n"), 1):
        yield Piece("prose", line, text)


def pieces_of_cpp(source: str) -> Iterator[Piece]:
    """Yield the comments, one piece a line."""
    for line, text in enumerate(source.split("\n"), 1):
        if "//" in text:
            yield Piece("prose", line, text[text.index("//") :])


def findings(path: Path, source: str) -> Iterator[Finding]:
    """Yield what in the source of a file breaks a rule."""
    name = path.relative_to(ROOT).as_posix()
    of = {".py": pieces_of_python, ".pyi": pieces_of_python, ".md": pieces_of_markdown, ".cpp": pieces_of_cpp}
    for kind, line, text in of[path.suffix](source):
        if kind == "prose":
            for found, say in _banned(text):
                yield Finding(name, line + text[: found.start()].count("\n"), found[0], say)
        elif kind == "docstring" and FIRST_LINE.match(text):
            yield Finding(name, line, text.split(" ")[0], RULES["docstrings"]["say"])
        elif kind == "name":
            yield from (Finding(name, line, text, say) for pattern, say in NAMES if pattern.search(text))
            if text.startswith("test_") and len(text) > LONGEST_TEST_NAME:
                yield Finding(name, line, text, f"a test's name has at most {LONGEST_TEST_NAME} characters")


def _banned(text: str) -> Iterator[tuple[re.Match[str], str]]:
    text = _CODE.sub(lambda code: "`" * len(code[0]), text)
    for pattern, say in WORDS:
        for found in pattern.finditer(text):
            yield found, say


def files(arguments: list[str]) -> Iterator[Path]:
    """Yield the files that are checked: those below the paths given, or all."""
    for root in arguments or RULES["files"]["roots"]:
        path = (ROOT / root).resolve()
        found = [path] if path.is_file() else sorted(path.rglob("*"))
        for file in found:
            relative = file.relative_to(ROOT).as_posix()
            if file.suffix in {".py", ".pyi", ".md", ".cpp"} and not any(
                re.search(skip, relative) for skip in RULES["files"]["skip"]
            ):
                yield file


def main(arguments: list[str]) -> int:
    """Print each finding that is not allowed, and each allowed place that no longer exists."""
    found = [each for path in files(arguments) for each in findings(path, path.read_text(encoding="utf-8"))]
    allowed = {(place["path"], place["text"]) for place in RULES.get("allow", [])}
    left = [each for each in found if (each.path, each.text) not in allowed]
    stale = set() if arguments else allowed - {(each.path, each.text) for each in found}
    print(*left, sep="\n", end="\n" if left else "")
    for path, text in sorted(stale):
        print(f"tests/words/words.toml: {text!r} in {path} is allowed and does not occur")
    print(f"{len(left) + len(stale)} findings; {len(allowed)} places allowed")
    return 1 if left or stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
