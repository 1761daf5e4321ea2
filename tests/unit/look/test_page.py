"""The page holds what it is given, escaped, and stays small."""

from __future__ import annotations

from urllib.parse import quote_plus
from xml.etree import ElementTree as ET

from doctor_facts import TOPIC, facts_of, subscription_of
from hypothesis import given
from hypothesis import strategies as st

from pulsar_ext.doctor.examination import Observation, judge
from pulsar_ext.look.markup import Markup, element
from pulsar_ext.look.page import survey_page
from pulsar_ext.look.survey import Survey
from pulsar_ext.look.topic_map import map_of


def page_of(*facts, **options):
    """Draw the page of some facts."""
    seen = Observation(tuple(facts), (), 7, ("a note",))
    return survey_page(Survey(tuple(map(map_of, facts)), judge(seen)), TOPIC, "now", **options)


def parsed(page):
    """Give the page's elements."""
    return ET.fromstring(page.removeprefix("<!doctype html>"))


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1))
def test_names_are_text(name):
    """Whatever a subscription is called, it is text in the page, and no markup."""
    cursors = {quote_plus(name): ("1:1", "[(1:2..1:9]]", None)}
    page = parsed(page_of(facts_of([(1, 10)], cursors, {name: subscription_of()})))
    [row] = page.findall(".//*[@data-cursor]")
    assert row.get("data-cursor") == name
    assert {one.tag for one in page.iter()}.isdisjoint({"script", "img", "link"})


def test_many_holes_and_cursors():
    """A thousand cursors, one with thousands of holes, are less than a megabyte, which says what it leaves out."""
    ranges = ",".join(f"(1:{at}..1:{at + 1}]" for at in range(0, 20_000, 2))
    cursors = {"holed": ("1:-1", f"[{ranges}]", None)}
    cursors |= {f"s{at}": ("1:19998", "[]", None) for at in range(1_000)}
    page = page_of(facts_of([(1, 20_000)], cursors))
    assert len(page) < 1_000_000
    assert len(parsed(page).findall(".//*[@data-cursor]")) == 50
    assert "951 more cursors" in page
    assert "the first 20 of 10,000" in page


def test_nothing_stored():
    """A topic without entries has a page of its cursors; what was not seen is said."""
    page = parsed(page_of(facts_of([(1, 0)], {"s": ("1:-1", "[]", None)})))
    assert [one.get("data-cursor") for one in page.findall(".//*[@data-cursor]")] == ["s"]
    assert "a note" in [one.text for one in page.iter("p")]


def test_a_page_that_is_watched_loads_itself_again():
    """Only where it is drawn again and again."""
    assert parsed(page_of(refresh_seconds=5)).find(".//meta[@http-equiv='refresh']").get("content") == "5"
    assert parsed(page_of()).find(".//meta[@http-equiv='refresh']") is None


def test_elements():
    """Text is escaped once, markup not at all; attributes of None are left out."""
    assert element("p", "<&>", Markup("<b>x</b>"), title='"', id=None) == '<p title="&quot;">&lt;&amp;&gt;<b>x</b></p>'
    assert element("rect", class_="a", data_x=1) == '<rect class="a" data-x="1"/>'
