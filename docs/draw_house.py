"""Draw the packages and their imports: `python docs/draw_house.py` writes docs/house.png.

Sizes and arrows are read from the source. An arrow implied by a longer path is omitted.
"""

from __future__ import annotations

import ast
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

ROOT = Path(__file__).parents[1]
PACKAGE = "pulsar_ext"
EVERYWHERE = {"errors", "_native", "ids", "_wire"}
"""The ground: nearly every package imports it, and arrows to it would hide the others."""
PLACES = {
    "cli": (0.5, 14), "reproduce": (0.5, 13), "testing": (0.5, 12), "spark": (0.2, 11), "asyncio": (0.8, 11),
    "faststream": (0.85, 12),
    "otel": (0.16, 9.2), "doctor": (0.88, 9.1), "request": (0.14, 10.05), "look": (0.88, 9.95),
    "topics_reader": (0.385, 9.35),
    "client": (0.5, 10.45), "key_shared": (0.62, 9), "consumer": (0.85, 8.3), "process": (0.85, 7.55),
    "redelivery": (0.85, 6.8), "reader": (0.55, 6.2),
    "table_view": (0.55, 7.1), "intercept": (0.42, 8.3),
    "ack": (0.85, 6), "receive": (0.74, 5), "skip": (0.46, 5), "producer": (0.15, 8), "dedup": (0.15, 7),
    "produce": (0.15, 6), "_runtime": (0.4, 4), "chunks": (0.5, 3), "message": (0.85, 3),
    "schema": (0.75, 2.3), "admin": (0.5, 2), "ids": (0.5, 1),
    "_native": (0.3, 0), "_wire": (0.7, 0), "errors": (0.5, -1),
}  # fmt: skip
_FAR = 2
COLOURS = {"face": "#f5e6c8", "ground": "#d8dee6", "room": "#cfe3d4", "top": "#dcd6ea"}


def _files(room: str) -> list[Path]:
    folder = ROOT / PACKAGE / room
    return sorted(folder.rglob("*.py")) if folder.is_dir() else [folder.with_suffix(".py")]


def _imported(file: Path) -> set[str]:
    """Return the rooms that a file imports from."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            parts = node.module.split(".")
            if parts[0] == PACKAGE and len(parts) > 1:
                found.add(parts[1])
            elif node.level == 1 and file.parent.name == PACKAGE:
                found.add(parts[0])
    return found


def _below(uses: dict[str, set[str]], room: str) -> set[str]:
    """Return every room that a room imports, directly or indirectly."""
    found: set[str] = set()
    ahead = list(uses[room])
    while ahead:
        other = ahead.pop()
        if other not in found:
            found.add(other)
            ahead += uses[other]
    return found


def _kind(room: str) -> str:
    if room in ("consumer", "reader", "table_view", "producer", "message"):
        return "face"
    if room in EVERYWHERE:
        return "ground"
    return "top" if room in ("cli", "reproduce", "testing", "spark", "asyncio", "faststream") else "room"


def main() -> None:
    """Draw the picture."""
    figure, axes = plt.subplots(figsize=(11, 12.5), dpi=110)
    uses = {room: {one for file in _files(room) for one in _imported(file)} & PLACES.keys() - {room} for room in PLACES}
    for room, others in uses.items():
        for other in others - EVERYWHERE:
            if any(other in _below(uses, between) for between in others - {other}):
                continue
            (x, y), (to_x, to_y) = PLACES[room], PLACES[other]
            arrow = FancyArrowPatch(
                (x, y - 0.3), (to_x, to_y + 0.3), arrowstyle="-|>", mutation_scale=11, color="#69727d",
                connectionstyle=f"arc3,rad={0.12 * (y - to_y > _FAR)}",
            )  # fmt: skip
            axes.add_patch(arrow)
    for room, (x, y) in PLACES.items():
        files = _files(room)
        lines = sum(len(file.read_text().splitlines()) for file in files)
        box = FancyBboxPatch(
            (x - 0.105, y - 0.27), 0.21, 0.54, boxstyle="round,pad=0.004,rounding_size=0.02", linewidth=0.8,
            facecolor=COLOURS[_kind(room)], edgecolor="#56606c", zorder=3,
        )  # fmt: skip
        axes.add_patch(box)
        axes.text(x, y + 0.06, room, ha="center", va="center", fontsize=12, weight="bold", zorder=4)
        what = f"{lines:,} lines" + (f", {len(files)} files" if len(files) > 1 else "")
        axes.text(x, y - 0.14, what, ha="center", va="center", fontsize=8, color="#404850", zorder=4)
    axes.set_xlim(-0.03, 1.03)
    axes.set_ylim(-1.5, 14.6)
    axes.axis("off")
    axes.set_title("pulsar_ext: each room imports only from rooms below it")
    figure.tight_layout()
    figure.savefig(ROOT / "docs" / "house.png")


if __name__ == "__main__":
    main()
