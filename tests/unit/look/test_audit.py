"""Page of an audit: each partition, and each finding with its places."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from pulsar_ext.look.page import AuditedTopic, audit_page

KINDS = ("incomplete chunks", "gaps in sequence ids")
COUNTED = st.tuples(st.integers(0, 99), st.lists(st.text("0123:<&", min_size=1)))
FOUND = st.tuples(COUNTED, COUNTED).map(lambda both: dict(zip(KINDS, both, strict=True)))
TOPICS = st.lists(
    st.builds(AuditedTopic, st.text("abc-<&", min_size=1), st.integers(0, 10**6), st.booleans(), FOUND), max_size=5
)


@given(TOPICS)
def test_audit_page_has_every_finding(topics):
    """Bars are scaled by messages, and the tables have exactly the findings."""
    page = ET.fromstring(audit_page(topics, "t", "now").removeprefix("<!doctype html>"))
    assert [int(bar.get("width")) for bar in page.findall(".//figure//rect")] == [one.messages for one in topics]
    rows = [["".join(cell.itertext()) for cell in row] for row in page.findall(".//tbody/tr")]
    assert [(row[0], int(row[1]), row[2]) for row in rows] == [
        (one.name, one.found[kind][0], ", ".join(one.found[kind][1]))
        for kind in KINDS
        for one in topics
        if one.found[kind][0]
    ]
    assert [head.text for head in page.findall(".//h3")] == [
        kind for kind in KINDS if any(one.found[kind][0] for one in topics)
    ]
    wrong = sum(not one.is_clean for one in topics)
    assert ("no problems found" in page.find(".//title").text) == (not wrong)
