"""Table of results through mtls or a cluster: another run of a family replaces its row only."""

from collections import Counter

import through


def _row(family, passed, *failed):
    return through.Row(family, Counter(passed=passed, failed=len(failed)), failed=list(failed), day="2026-01-01")


def test_written_rows_are_read_again():
    """Counts, failures and reasons of each family survive, and the total is not a family."""
    rows = [_row("ack", 3), _row("skip", 2, "tests.integration.skip.test_live::test_all[a-1]")]
    rows[0].counts["standalone only"] = rows[0].reasons["is about tokens, in short"] = 2
    read = through.read(through.table(rows))
    assert list(read) == ["ack", "skip"]
    for row in rows:
        found = read[row.family]
        assert (+found.counts, found.failed, found.reasons) == (+row.counts, row.failed, row.reasons)


def test_update_keeps_the_other_families(tmp_path, monkeypatch):
    """The rows of the way and of the families that ran are replaced, and all others stay."""
    monkeypatch.setattr(through, "RESULTS", tmp_path / "results.md")
    empty = "".join(f"<!-- {way}: begin -->\n<!-- {way}: end -->\n" for way in ("mtls", "cluster"))
    through.RESULTS.write_text(f"# Head\n{empty}")
    through.update("mtls", _row("skip", 2))
    through.update("mtls", _row("ack", 1, "tests.integration.ack.test_x::test_y"))
    through.update("cluster", _row("ack", 7))
    through.update("mtls", _row("ack", 3))
    text = through.RESULTS.read_text()
    assert "| ack | 3 | 0 |" in text
    assert "| skip | 2 | 0 |" in text
    assert "| all | 5 | 0 |" in text
    assert "| ack | 7 | 0 |" in text
    assert "test_y" not in text
