"""Table of results through mtls or a cluster: another run of a family replaces its row only."""

from collections import Counter

import through


def _row(passed, *failed):
    return through.Row(Counter(passed=passed, failed=len(failed)), failed=list(failed), day="2026-01-01")


def test_written_rows_are_read_again():
    """Counts, failures and reasons of each family and way survive, and the total is not a family."""
    ack, skip = _row(3), _row(2, "tests.integration.skip.test_live::test_all[a-1]")
    ack.counts["standalone only"] = ack.reasons["is about tokens, in short"] = 2
    runs = {"mtls": {"ack": ack, "skip": skip}, "cluster": {"skip": _row(4)}}
    read = through.read(through.table(runs))
    for way, rows in runs.items():
        assert list(read[way]) == list(rows)
        for family, row in rows.items():
            found = read[way][family]
            assert (+found.counts, found.failed, found.reasons) == (+row.counts, row.failed, row.reasons)


def test_update_keeps_the_other_families(tmp_path, monkeypatch):
    """The rows of the way and of the families that ran are replaced, and all others stay."""
    monkeypatch.setattr(through, "RESULTS", tmp_path / "results.md")
    through.RESULTS.write_text("# Head\n<!-- written by through.py -->\n")
    through.update("mtls", "skip", _row(2))
    through.update("mtls", "ack", _row(1, "tests.integration.ack.test_x::test_y"))
    through.update("cluster", "ack", _row(7))
    through.update("mtls", "ack", _row(3))
    text = through.RESULTS.read_text()
    assert "| ack | 3 | 0 | 0 | 0 | 0 | 2026-01-01 | 7 | 0 |" in text
    assert "| skip | 2 | 0 |" in text
    assert "| all | 5 | 0 | 0 | 0 | 0 |  | 7 | 0 |" in text
    assert "test_y" not in text
