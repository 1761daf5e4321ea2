"""Table, JSON and Markdown of a run, and the documents that contain them."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from rich.console import Console

from pulsar_ext.cli.reproduce import app
from pulsar_ext.errors import InvalidUse
from pulsar_ext.reproduce import GROUPS, SCENARIOS, Counts, Row, to_json, to_markdown, to_table, update_markdown

_PROJECT = Path(__file__).parents[3]
_ROWS = [
    Row(SCENARIOS["chunk-seek"], "4.2.4", Counts(sent=3, delivered=2, lost=1), Counts(sent=3, delivered=3)),
    Row(SCENARIOS["chunk-nack"], "4.2.4", Counts(sent=2, stuck=2), Counts(sent=2, delivered=1, stuck=1)),
]


def test_documentation_has_a_row_per_scenario():
    """The table of docs/reproduce.md has the current scenarios and claims in order."""
    table = (
        (_PROJECT / "docs" / "reproduce.md").read_text().partition("<!-- reproduce: begin -->")[2].partition("<!--")[0]
    )
    assert re.findall(r"^\| \[([a-z-]+)\]", table, re.MULTILINE) == list(SCENARIOS)
    claims = [line.split(" | ")[1] for line in table.splitlines() if line.startswith("| [")]
    assert claims == [scenario.claim for scenario in SCENARIOS.values()]
    assert "BROKEN" not in table


def test_documentation_has_an_anchor_per_scenario():
    """Each scenario has an anchor with its name, which the table of the last run links to."""
    anchors = re.findall(r'^\| <a id="([a-z-]+)"></a>', (_PROJECT / "docs" / "reproduce.md").read_text(), re.MULTILINE)
    assert anchors == list(SCENARIOS)


def test_every_scenario_is_in_one_group():
    """The README's table has each scenario in one group, with the groups' current texts."""
    assert sorted(name for _, names in GROUPS.values() for name in names) == sorted(SCENARIOS)
    table = (_PROJECT / "README.md").read_text().partition("<!-- reproduce summary: begin -->")[2].partition("<!--")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if re.match(r"\| (?!about)[a-z]", line)]
    assert [row[0] for row in rows] == list(GROUPS)
    for (_, about, official, ours), (expected, names) in zip(rows, GROUPS.values(), strict=True):
        assert about == expected
        assert ours == f"{len(names)} of {len(names)} right"
        assert official.endswith(f" of {len(names)} right")


def test_summary_needs_every_scenario():
    """A run of some scenarios does not change the README's table."""
    with pytest.raises(InvalidUse, match="missing: chunk-seek-in-flight"):
        update_markdown("<!-- reproduce summary: begin -->\n<!-- reproduce summary: end -->", _ROWS)


def test_json_has_stable_keys():
    """The JSON has the counts of both clients and the verdict under stable keys."""
    data = json.loads(to_json(_ROWS))
    assert set(data) == {"official", "pulsar_ext", "scenarios", "broken"}
    assert data["broken"] == ["chunk-nack"]
    first = data["scenarios"][0]
    assert {"name", "claim", "reference", "profile", "broker_version", "official", "pulsar_ext", "verdict"} == set(
        first
    )
    assert set(first["official"]) == {"sent", "delivered", "lost", "duplicated", "stuck", "note", "ended"}
    assert (first["official"]["lost"], first["pulsar_ext"]["delivered"]) == (1, 3)
    assert first["verdict"] == "fixed here"


def test_table_shows_both_clients_in_one_line():
    """A line has the scenario, both results and the verdict."""
    output = io.StringIO()
    Console(file=output, width=120).print(to_table(_ROWS))
    line = next(line for line in output.getvalue().splitlines() if "chunk-seek" in line)
    assert re.search("chunk-seek.+1 of 3 lost.+3 of 3.+fixed here", line)


def test_markdown_table_replaces_the_old_one():
    """The text between the markers is replaced, the text around them stays, and a repetition changes nothing."""
    text = "before\n<!-- reproduce: begin -->\nold\n<!-- reproduce: end -->\nafter\n"
    new = update_markdown(text, _ROWS)
    assert new.startswith("before\n")
    assert new.endswith("\nafter\n")
    assert to_markdown(_ROWS) in new
    assert "old" not in new
    assert update_markdown(new, _ROWS) == new


@pytest.mark.parametrize("text", ["", "<!-- reproduce: begin -->", "<!-- reproduce: end --><!-- reproduce: begin -->"])
def test_text_without_markers_raises(text):
    """A text without the table's markers raises, so its file is not changed."""
    with pytest.raises(InvalidUse, match="reproduce: begin"):
        update_markdown(text, _ROWS)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["no-such"], "choose from: chunk-seek"),
        (["--json", "--markdown"], "exclude each other"),
        (["--admin-url", "http://localhost:1"], "requires --url"),
        (["--url", "pulsar://localhost:1", "--backend", "process"], "exclude each other"),
        (["--url", "nonsense"], "service URL"),
        (["--url", "pulsar://localhost:1", "--admin-url", "http://localhost:1"], "http://localhost:1"),
        (["--update", "/no/such/file"], "cannot be read"),
    ],
)
def test_bad_usage_is_reported_in_one_line(arguments, words, capsys, monkeypatch):
    """A run that is impossible ends with status 2 and one line with the reason, without a stack trace."""
    for name in ("PULSAR_URL", "PULSAR_EXT_URL", "PULSAR_EXT_ADMIN_URL", "PULSAR_ADMIN_URL"):
        monkeypatch.delenv(name, raising=False)
    assert app(arguments, result_action="return_value") == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("pulsar-ext: ")
    assert words in last


def test_list_needs_no_broker(capsys):
    """--list shows every scenario."""
    assert app(["--list"], result_action="return_value") == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in SCENARIOS)
