"""The page of Java's features is current, and its program rejects tests that do not exist."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[3] / "docs" / "draw_parity.py"


@pytest.fixture
def parity():
    """The program as a module."""
    spec = importlib.util.spec_from_file_location("draw_parity", PROGRAM)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_named_test_exists_and_the_page_is_current(parity):
    """After a renamed test or a changed row, the program has to run again."""
    assert parity.missing() == []
    assert parity.PAGE.read_text(encoding="utf-8") == parity.page()


def test_a_missing_test_is_an_error(parity, tmp_path, monkeypatch, capsys):
    """The program names the missing tests, and writes nothing."""
    row = parity.row("what", "yes", "no", "yes", "client/test_table_view::test_of_no_name", "no/such_file::test_a")
    monkeypatch.setattr(parity, "CHAPTERS", {"A chapter": [row]})
    monkeypatch.setattr(parity, "PAGE", tmp_path / "parity.md")
    assert parity.main() == 1
    assert "test_of_no_name" in (printed := capsys.readouterr().err)
    assert "no/such_file" in printed
    assert not (tmp_path / "parity.md").exists()


def test_each_supported_row_has_a_test(parity):
    """A row without a test begins with no."""
    for rows in parity.CHAPTERS.values():
        assert all(row.tests or row.ours.startswith("no") for row in rows)
