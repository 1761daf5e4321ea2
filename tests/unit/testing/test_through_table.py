"""Table of results on other brokers: another run of a family replaces its row only."""

from collections import Counter

import pytest
import through


def _row(passed, *failed):
    return through.Row(Counter(passed=passed, failed=len(failed)), failed=list(failed), day="2026-01-01")


@pytest.fixture
def page(tmp_path, monkeypatch):
    """Return a page whose columns are `mtls` and `cluster`; nothing is recorded."""
    page = tmp_path / "results.md"
    page.write_text("# Head\n<!-- written by through.py -->\nold")
    monkeypatch.setattr(through, "RESULTS", tmp_path / "results.json")
    monkeypatch.setattr(through, "PAGES", {page: through.WAYS, tmp_path / "other.md": ("4.0.8",)})
    return page


def test_recorded_rows_are_read_again(page):
    """Counts, failures and reasons of each family and kind of broker survive."""
    ack, skip = _row(3), _row(2, "tests.integration.skip.test_live::test_all[a-1]")
    ack.counts["excluded"] = ack.reasons["is about tokens, in short"] = 2
    for way, family, row in (("mtls", "ack", ack), ("mtls", "skip", skip), ("cluster", "skip", _row(4))):
        through.update(way, family, row)
    assert through.read() == {"mtls": {"ack": ack, "skip": skip}, "cluster": {"skip": _row(4)}}
    text = page.read_text()
    assert text.startswith("# Head\n")
    assert "| ack | 3 passed, 2 excluded; 0 s 2026-01-01 |  |\n" in text
    assert "| is about tokens, in short | ack 2 |  |\n" in text


def test_update_keeps_the_other_families(page):
    """The rows of the kind and of the families that ran are replaced, and all others stay."""
    through.update("mtls", "skip", _row(2))
    through.update("mtls", "ack", _row(1, "tests.integration.ack.test_x::test_y"))
    assert "- mtls: `tests.integration.ack.test_x::test_y`" in page.read_text()
    through.update("cluster", "ack", _row(7))
    through.update("mtls", "ack", _row(3))
    text = page.read_text()
    assert "| ack | 3 passed; 0 s 2026-01-01 | 7 passed; 0 s 2026-01-01 |" in text
    assert "| skip | 2 passed; 0 s 2026-01-01 |  |" in text
    assert "| all | 5 passed; 0 s  | 7 passed; 0 s  |" in text
    assert "test_y" not in text
