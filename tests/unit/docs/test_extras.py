"""The pages name the extras that their commands need."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_COMMAND = re.compile(r"^ *(?:\$ )?pulsar-ext (?!--version)(\w+)", re.MULTILINE)
_NEEDED = {"broker": {"cli", "testing"}, "spark": {"cli", "spark"}}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_names_the_extras_of_its_commands(page):
    """A page with a `pulsar-ext` command says which extras to install."""
    text = page.read_text(encoding="utf-8")
    named = [set(extras.split(",")) for extras in re.findall(r"pulsar-ext\[([a-z,]+)\]", text)]
    for command in set(_COMMAND.findall(text)):
        assert any(_NEEDED.get(command, {"cli"}) <= extras for extras in named), command
