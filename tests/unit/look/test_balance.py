"""Page of a plan: each part with its weight, and each bin with a weight."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from pulsar_ext.key_shared.plan import binned, plan_key_hash_ranges, weights_of
from pulsar_ext.look.page import plan_page

HISTOGRAMS = st.dictionaries(st.integers(0, 65535), st.integers(1, 1000), max_size=50)


@given(HISTOGRAMS, st.integers(1, 9))
def test_plan_page_has_every_part_and_bin(histogram, count):
    """Rows are the parts and bars the bins, also for a topic without messages."""
    parts = plan_key_hash_ranges(histogram, count)
    weights = weights_of(histogram, parts)
    page = ET.fromstring(plan_page(histogram, parts, "t", "messages", "now").removeprefix("<!doctype html>"))
    rows = [["".join(cell.itertext()) for cell in row] for row in page.findall(".//tbody/tr")]
    assert [(row[1], int(row[2].replace(",", ""))) for row in rows] == [
        (str(part), weight) for part, weight in zip(parts, weights, strict=True)
    ]
    assert {int(bar.get("x")) for bar in page.findall(".//figure//rect")} == {slot // 256 for slot in histogram}
    assert len(page.findall(".//figure//line")) == count - 1


@given(HISTOGRAMS, st.integers(1, 500))
def test_bins_keep_the_total_weight(histogram, count):
    """The bins' total weight is the histogram's, for any number of bins."""
    bins = binned(histogram, count)
    assert (len(bins), sum(bins)) == (count, sum(histogram.values()))
