"""The page of a plan shows each part with its weight, and each bin that has any."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from pulsar_ext.key_shared.plan import binned, plan_key_hash_ranges, weights_of
from pulsar_ext.look.slots import plan_page

HISTOGRAMS = st.dictionaries(st.integers(0, 65535), st.integers(1, 1000), max_size=50)


@given(HISTOGRAMS, st.integers(1, 9))
def test_a_page_of_a_plan(histogram, count):
    """Rows are the parts, bars the bins; a topic without messages has a page too."""
    parts = plan_key_hash_ranges(histogram, count)
    weights = weights_of(histogram, parts)
    page = ET.fromstring(plan_page(histogram, parts, weights, "t", "messages", "now").removeprefix("<!doctype html>"))
    rows = [["".join(cell.itertext()) for cell in row] for row in page.findall(".//tbody/tr")]
    assert [(row[1], int(row[2].replace(",", ""))) for row in rows] == [
        (str(part), weight) for part, weight in zip(parts, weights, strict=True)
    ]
    assert {int(bar.get("x")) for bar in page.findall(".//figure//rect")} == {slot // 256 for slot in histogram}
    assert len(page.findall(".//figure//line")) == count - 1


@given(HISTOGRAMS, st.integers(1, 500))
def test_bins(histogram, count):
    """No weight is lost, whatever the number of bins."""
    bins = binned(histogram, count)
    assert (len(bins), sum(bins)) == (count, sum(histogram.values()))
