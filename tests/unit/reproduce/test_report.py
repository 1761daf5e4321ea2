"""The table, its JSON and its Markdown, and the documents that repeat it."""

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


def test_the_documentation_has_a_row_for_every_scenario():
    """The table of docs/reproduce.md was generated from the scenarios that exist now, in their order."""
    table = (
        (_PROJECT / "docs" / "reproduce.md").read_text().partition("<!-- reproduce: begin -->")[2].partition("<!--")[0]
    )
    assert re.findall(r"^\| \[([a-z-]+)\]", table, re.MULTILINE) == list(SCENARIOS)
    claims = [line.split(" | ")[1] for line in table.splitlines() if line.startswith("| [")]
    assert claims == [scenario.claim for scenario in SCENARIOS.values()]
    assert "BROKEN" not in table


def test_the_documentation_has_a_paragraph_for_every_scenario():
    """Each scenario is explained under a heading of its name, which the README's table links to."""
    headings = re.findall(r"^## ([a-z-]+)$", (_PROJECT / "docs" / "reproduce.md").read_text(), re.MULTILINE)
    assert headings == list(SCENARIOS)


def test_every_scenario_is_in_one_group():
    """The README's short table leaves no scenario out, counts none twice, and was generated from these groups."""
    assert sorted(name for _, names in GROUPS.values() for name in names) == sorted(SCENARIOS)
    table = (_PROJECT / "README.md").read_text().partition("<!-- reproduce summary: begin -->")[2].partition("<!--")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if re.match(r"\| (?!about)[a-z]", line)]
    assert [row[0] for row in rows] == list(GROUPS)
    for (_, about, official, ours), (says, names) in zip(rows, GROUPS.values(), strict=True):
        assert about == says
        assert ours == f"{len(names)} of {len(names)} right"
        assert official.endswith(f" of {len(names)} right")


def test_the_summary_wants_every_scenario():
    """A run of some scenarios leaves the README's short table as it is."""
    with pytest.raises(InvalidUse, match="not among them: chunk-seek-in-flight"):
        update_markdown("<!-- reproduce summary: begin -->\n<!-- reproduce summary: end -->", _ROWS)


def test_json_has_its_keys():
    """Programs find the counts of both clients and the verdict under names that stay."""
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


def test_the_table_shows_both_clients_beside_each_other():
    """A person sees scenario, both outcomes and the verdict in one line."""
    output = io.StringIO()
    Console(file=output, width=120).print(to_table(_ROWS))
    line = next(line for line in output.getvalue().splitlines() if "chunk-seek" in line)
    assert re.search("chunk-seek.+1 of 3 lost.+3 of 3.+fixed here", line)


def test_the_markdown_table_replaces_the_old_one():
    """What stands between the markers is replaced, what stands around them stays, and once more changes nothing."""
    text = "before\n<!-- reproduce: begin -->\nold\n<!-- reproduce: end -->\nafter\n"
    new = update_markdown(text, _ROWS)
    assert new.startswith("before\n")
    assert new.endswith("\nafter\n")
    assert to_markdown(_ROWS) in new
    assert "old" not in new
    assert update_markdown(new, _ROWS) == new


@pytest.mark.parametrize("text", ["", "<!-- reproduce: begin -->", "<!-- reproduce: end --><!-- reproduce: begin -->"])
def test_a_text_without_markers_is_refused(text):
    """A file that has no place for the table is not touched."""
    with pytest.raises(InvalidUse, match="reproduce: begin"):
        update_markdown(text, _ROWS)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["no-such"], "choose from: chunk-seek"),
        (["--json", "--markdown"], "exclude each other"),
        (["--admin-url", "http://localhost:1"], "goes with --url"),
        (["--url", "pulsar://localhost:1", "--backend", "process"], "exclude each other"),
        (["--url", "nonsense"], "service URL"),
        (["--url", "pulsar://localhost:1", "--admin-url", "http://localhost:1"], "http://localhost:1"),
        (["--update", "/no/such/file"], "cannot be read"),
    ],
)
def test_bad_usage_is_told_in_one_line(arguments, words, capsys, monkeypatch):
    """What cannot run ends with status 2 and a line that says why, without a stack trace."""
    for name in ("PULSAR_URL", "PULSAR_EXT_URL", "PULSAR_EXT_ADMIN_URL", "PULSAR_ADMIN_URL"):
        monkeypatch.delenv(name, raising=False)
    assert app(arguments, result_action="return_value") == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("pulsar-ext: ")
    assert words in last


def test_the_list_needs_no_broker(capsys):
    """--list names every scenario."""
    assert app(["--list"], result_action="return_value") == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in SCENARIOS)
