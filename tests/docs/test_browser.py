"""Every HTML page in a real browser: the site's, and those of `look`, `ranges` and `spark audit`."""

from __future__ import annotations

import functools
import http.server
import importlib
import shutil
import sys
import threading
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

from pulsar_ext.doctor.findings import Observation
from pulsar_ext.doctor.rules import judge
from pulsar_ext.key_shared.coverage import KeyCover
from pulsar_ext.key_shared.hash_ranges import KeyHashRanges
from pulsar_ext.key_shared.plan import plan_key_hash_ranges
from pulsar_ext.look.page import AuditedTopic, audit_page, cover_page, plan_page, survey_page
from pulsar_ext.look.survey import Survey, map_of

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "unit")]  # the builder and the facts are not in the package
WIDTHS = (360, 1300)
NAME = "a subscription with a name that is as long as names become once a team, a service and a region are in it"


def _drawn():
    """Return the pages that the commands draw, by name, with texts that may be too wide for a screen."""
    facts = importlib.import_module("doctor_facts")
    ranges = ",".join(f"(1:{at}..1:{at + 1}]" for at in range(0, 2_000, 2))
    cursors = {NAME.replace(" ", "-"): ("1:-1", f"[{ranges}]", None), "s": ("1:1998", "[]", None)}
    seen = facts.facts_of([(1, 2_000), (2, 5)], cursors, dict.fromkeys(cursors, facts.subscription_of()))
    topic = f"persistent://public/default/{NAME.replace(' ', '-')}"
    weights = {slot: slot % 7 + 1 for slot in range(0, 65_536, 97)}
    parts = plan_key_hash_ranges(weights, 8)
    cover = KeyCover.of(topic, "s", [(NAME, KeyHashRanges(["0-99", "200-299"])), ("b", KeyHashRanges(["250-65535"]))])
    found = {"gaps in sequence ids": (40, [f"{number}:0" for number in range(40)])}
    return {
        "look": survey_page(Survey((map_of(seen),), judge(Observation((seen,), (), 7, ("a note",)))), topic, "now"),
        "plan": plan_page(weights, parts, topic, "messages", "now"),
        "cover": cover_page([cover], f"s on {topic}", "now"),
        "audit": audit_page([AuditedTopic(topic, 10**6, found=found, is_clean=False)], topic, "now"),
    }


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """The folder and the URL of the served site and drawn pages."""
    importlib.import_module("docs.builder.__main__").main()
    place = tmp_path_factory.mktemp("pages")
    shutil.copytree(ROOT / ".site" / "html", place, dirs_exist_ok=True)
    (place / "drawn").mkdir()
    for name, page in _drawn().items():
        (place / "drawn" / f"{name}.html").write_text(page, encoding="utf-8")
    handler = functools.partial(_Quiet, directory=str(place))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield place, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        """Log nothing: pytest shows what fails."""


@pytest.fixture(scope="module")
def browser():
    """Debian's Chromium, without a window."""
    path = shutil.which("chromium")
    assert path, "apt-get install chromium, in which the pages are opened"
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield running
        running.close()


def test_no_page_overflows_or_complains(served, browser):
    """Each page fits a phone's and a desk's width, loads nothing from other hosts, and its console stays empty."""
    place, url = served
    page = browser.new_page()
    faults = []
    page.on("console", lambda message: faults.append(f"{page.url}: console: {message.text}"))
    page.on("pageerror", lambda error: faults.append(f"{page.url}: {error}"))
    page.on("response", lambda got: got.status < 400 or faults.append(f"{page.url}: {got.status} for {got.url}"))
    page.on("request", lambda made: made.url.startswith((url, "data:")) or faults.append(f"foreign: {made.url}"))
    # The reports for upstream have one template, so one of them is enough.
    shown = [file for file in place.rglob("*.html") if file.parent.name != "upstream" or file.stem == "index"]
    assert len(shown) > 40
    for file in sorted(shown):
        page.goto(f"{url}/{file.relative_to(place)}")
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 800})
            wide = page.evaluate("document.documentElement.scrollWidth")
            if wide > width:
                faults.append(f"{page.url}: {wide} px wide on {width} px")
    page.close()
    assert faults == []
