"""Page of covers: the slots of each consumer to scale, and slots without one or with several."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from pulsar_ext.key_shared.coverage import KeyCover
from pulsar_ext.key_shared.hash_ranges import KeyHashRanges
from pulsar_ext.look.page import cover_page


def test_cover_page_lists_faulty_slots():
    """Each consumer has a row, slots without one or with several are listed, and names are escaped."""
    named = [("<one>", KeyHashRanges(["0-99", "200-299"])), ("two", KeyHashRanges(["250-65535"]))]
    clean = KeyCover.of("t-1", "s", [("all", KeyHashRanges.full())])
    written = cover_page([KeyCover.of("t-0", "s", named), clean], "s on t", "now")
    page = ET.fromstring(written.removeprefix("<!doctype html>"))

    def drawn(row):
        return [(one.get("class"), int(one.get("x")), int(one.get("width"))) for one in row.findall(".//rect")]

    first, second = page.findall(".//figure")
    rows = {row.get("data-row"): drawn(row) for row in first.findall("./div")}
    assert rows == {
        "all slots": [
            ("acknowledged", 0, 100),
            ("acknowledged", 200, 50),
            ("acknowledged", 300, 65236),
            ("delivered", 250, 50),
            ("hole", 100, 100),
        ],
        "<one>": [("unread", 0, 100), ("unread", 200, 100)],
        "two": [("unread", 250, 65286)],
    }
    assert drawn(second.findall("./div")[0]) == [("acknowledged", 0, 65536)]
    [faults] = page.findall(".//table")
    cells = [[cell.text for cell in row] for row in faults.findall("./tbody/tr")]
    assert cells == [["no consumer", "100", "199", "100"], ["several consumers", "250", "299", "50"]]
