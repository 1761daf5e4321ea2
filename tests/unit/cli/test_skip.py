"""`pulsar-ext skip`: its picture as text."""

import pytest

pytest.importorskip("rich")
pytest.importorskip("cyclopts")

from rich.console import Console

from pulsar_ext.cli import look as map_of_topic
from pulsar_ext.cli.skip import picture
from pulsar_ext.ids.position import Ledgers, Position, PositionRange
from pulsar_ext.skip.boundaries import Backlog
from pulsar_ext.skip.skipper import SkipResult


def _lines(result, backlog):
    console = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: PTH123, SIM115
    with console.file:
        console.print(picture(result, backlog))
    return [line.rstrip() for line in console.export_text().splitlines()]


def _result(before, after, **over):
    values = {
        "requested": 6,
        "unit": "message",
        "skipped_messages": 6,
        "skipped_entries": 6,
        "position_before": before,
        "position_after": after,
        "exact": True,
        "strategy": "headers",
    }
    return SkipResult(**(values | over))


def test_picture_shows_ledgers_and_cursor():
    """Ledgers show acknowledged, skipped and remaining entries, and the cursor before and after."""
    backlog = Backlog(
        Ledgers([(3, 8), (5, 8), (6, 0)]), Position(3, 1), (PositionRange(Position(5, 4), Position(5, 6)),)
    )
    lines = _lines(_result(Position(3, 1), Position(3, 7)), backlog)
    assert lines[0] == "skipped 6 messages in 6 entries"
    assert lines[3].split() == ["3", "8", "░░▶▓▓▓▓▓▓", "░░░░░░░░▶"]
    assert lines[4].split() == ["5", "8", "█████▒▒█", "█████▒▒█"]
    assert "cursor 3:1 → 3:7; counted by: headers" in lines


def test_each_character_of_a_map_has_one_meaning():
    """The legend of `look` has distinct characters for all kinds and states, also in ASCII."""
    for ascii_only in (0, 1):
        glyphs = [style[ascii_only] for style in map_of_topic._STYLES.values()]
        assert len(set(glyphs)) == len(glyphs)


def test_cursor_before_the_first_entry():
    """A cursor that has acknowledged no entry of a ledger is drawn before its first entry."""
    backlog = Backlog(Ledgers([(3, 3)]), Position(3, -1))
    lines = _lines(_result(Position(3, -1), Position(3, 0), requested=10, unit="entry", exact=False), backlog)
    assert lines[3].split() == ["3", "3", "▶▓██", "░▶██"]
    assert lines[0].endswith("(requested: 10 entries)")


def test_picture_of_many_large_ledgers():
    """Only ledgers around the cursor are shown, and a cell of a large ledger is several entries."""
    backlog = Backlog(Ledgers([(ledger, 50_000) for ledger in range(40)]), Position(20, 24_999))
    lines = _lines(_result(Position(20, 24_999), Position(21, 49_999)), backlog)
    rows = [line.split() for line in lines[3:15]]
    assert [row[0] for row in rows] == [str(ledger) for ledger in range(19, 31)]
    assert rows[1][2] == "░" * 24 + "▶" + "▓" * 24
    assert "28 more ledgers" in "\n".join(lines)


def test_picture_of_an_inexact_skip():
    """A skip of fewer messages, its end inside a batch and redelivered messages are reported."""
    backlog = Backlog(Ledgers([(3, 2)]), Position(3, -1))
    result = _result(
        Position(3, -1), Position(3, 0), exact=False, skipped_entries=1, batch_index=2, redelivered_entries=4
    )
    text = "\n".join(_lines(result, backlog))
    assert "6 messages in 1 entry  (requested: 6 messages)" in text
    assert "before message 2 of the next batch" in text
    assert "will be redelivered: 4 acknowledged entries" in text
