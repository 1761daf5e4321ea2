"""Gather the pages of the repository into one tree, and adapt their links."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ROOT", "gather"]

ROOT = Path(__file__).parents[2]

_LANGUAGES = {".py": "python", ".sh": "bash", ".toml": "toml", ".java": "java", ".jsonl": "json", "": "text"}
_LINK = re.compile(r"""(!?\[[^\]]*\]\()([^)\s#:]+)(#[^)\s]*)?((?: "[^"]*")?\))""")
_FENCE = re.compile(r"^( *)(```|~~~)")


def gather(target: Path, made: Mapping[str, str]) -> None:
    """Write every page into a folder: those of docs/, and the files of the repository that they link to.

    Args:
        target: the folder.
        made: replacements of comments, such as `<!-- totals -->`, and generated pictures.
    """
    waiting = [
        ROOT / "README.md",
        *sorted((ROOT / "docs").rglob("*.md")),
        ROOT / "CHANGELOG.md",
        ROOT / "CONTRIBUTING.md",
    ]
    done: set[Path] = set()
    while waiting:
        file = waiting.pop()
        if file in done:
            continue
        done.add(file)
        place = target / _place(file)
        place.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix == ".md":
            text, found = _relinked(file, made)
            place.write_text(text, encoding="utf-8")
            waiting += found
        elif file.suffix in (".png", ".svg"):
            shutil.copyfile(file, place)
        else:
            place.write_text(_listing(file), encoding="utf-8")
    shutil.copyfile(ROOT / "docs" / "style.css", target / "style.css")


def _place(file: Path) -> PurePosixPath:
    """Return a file's path on the site: relative to docs/ if it is there; a program becomes a page."""
    path = PurePosixPath(file.relative_to(ROOT).as_posix())
    if path == PurePosixPath("README.md"):
        return PurePosixPath("index.md")
    if path == PurePosixPath("docs/README.md"):
        return PurePosixPath("contents.md")
    if path.parts[0] == "docs":
        path = path.relative_to("docs")
    if path.name == "README.md":
        path = path.with_name("index.md")
    if path.suffix not in (".md", ".png", ".svg"):
        path = path.with_name(f"{path.name}.md")
    return path


def _relinked(file: Path, made: Mapping[str, str]) -> tuple[str, list[Path]]:
    """Return a page with its links adapted to the site, and the linked files."""
    found: list[Path] = []
    here = _place(file).parent

    def relink(match: re.Match[str]) -> str:
        if match[2] in made:
            return match[0]
        other = Path(os.path.normpath(file.parent / match[2]))
        if other.is_dir() and (other / "README.md").is_file():
            other /= "README.md"
        if not other.is_file() or not other.is_relative_to(ROOT):
            raise SystemExit(f"{file.relative_to(ROOT)}: the target of the link {match[2]} does not exist")
        found.append(other)
        path = os.path.relpath(_place(other), here)
        return f"{match[1]}{path}{match[3] or ''}{match[4]}"

    lines: list[str] = []
    fence = ""
    text = file.read_text(encoding="utf-8")
    for place, what in made.items():
        text = text.replace(place, what) if place.startswith("<!--") else text
    for line in text.splitlines():
        mark = _FENCE.match(line)
        if mark and (not fence or fence == mark[2]):
            fence = "" if fence else mark[2]
        lines.append(line if fence or mark else _LINK.sub(relink, line))
    return "\n".join(lines) + "\n", found


def _listing(file: Path) -> str:
    """Return a page that shows a program."""
    name = file.relative_to(ROOT).as_posix()
    language = _LANGUAGES.get(file.suffix, "text")
    return f"# {name}\n\n~~~~{language}\n{file.read_text(encoding='utf-8').rstrip()}\n~~~~\n"
