"""Page of a survey: its content is escaped, and its size limited."""

from __future__ import annotations

from urllib.parse import quote_plus
from xml.etree import ElementTree as ET

from doctor_facts import TOPIC, facts_of, subscription_of
from hypothesis import given
from hypothesis import strategies as st

from pulsar_ext.doctor.findings import Observation
from pulsar_ext.doctor.rules import judge
from pulsar_ext.look.page import survey_page
from pulsar_ext.look.survey import Survey, map_of


def page_of(*facts, **options):
    """Return the page of some facts."""
    seen = Observation(tuple(facts), (), 7, ("a note",))
    return survey_page(Survey(tuple(map(map_of, facts)), judge(seen)), TOPIC, "now", **options)


def parsed(page):
    """Return the page's elements."""
    return ET.fromstring(page.removeprefix("<!doctype html>"))


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1))
def test_subscription_names_are_escaped(name):
    """Any subscription name is text in the page, not markup."""
    cursors = {quote_plus(name): ("1:1", "[(1:2..1:9]]", None)}
    page = parsed(page_of(facts_of([(1, 10)], cursors, {name: subscription_of()})))
    [row] = page.findall(".//*[@data-cursor]")
    assert row.get("data-cursor") == name
    assert {one.tag for one in page.iter()}.isdisjoint({"script", "img", "link"})


def test_page_of_many_holes_and_cursors_is_small():
    """A page of a thousand cursors and ten thousand holes is below a megabyte, and counts the rows that it omits."""
    ranges = ",".join(f"(1:{at}..1:{at + 1}]" for at in range(0, 20_000, 2))
    cursors = {"holed": ("1:-1", f"[{ranges}]", None)}
    cursors |= {f"s{at}": ("1:19998", "[]", None) for at in range(1_000)}
    page = page_of(facts_of([(1, 20_000)], cursors))
    assert len(page) < 1_000_000
    assert len(parsed(page).findall(".//*[@data-cursor]")) == 50
    assert "951 more cursors" in page
    assert "the first 20 of 10,000" in page


def test_page_of_an_empty_topic():
    """A topic without entries has a page with its cursors and notes."""
    page = parsed(page_of(facts_of([(1, 0)], {"s": ("1:-1", "[]", None)})))
    assert [one.get("data-cursor") for one in page.findall(".//*[@data-cursor]")] == ["s"]
    assert "a note" in [one.text for one in page.iter("p")]


def test_watched_page_reloads():
    """The page has a refresh interval only if it is watched."""
    assert parsed(page_of(refresh_seconds=5)).find(".//meta[@http-equiv='refresh']").get("content") == "5"
    assert parsed(page_of()).find(".//meta[@http-equiv='refresh']") is None
