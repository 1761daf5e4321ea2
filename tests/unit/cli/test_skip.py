"""`pulsar-ext skip`: its output."""

import pytest

pytest.importorskip("rich")
pytest.importorskip("cyclopts")

from pulsar_ext.cli import look as map_of_topic
from pulsar_ext.cli.skip import described
from pulsar_ext.ids.position import Position
from pulsar_ext.skip.skipper import SkipResult


def _result(**over):
    values = {
        "requested": 6,
        "unit": "message",
        "skipped_messages": 6,
        "skipped_entries": 6,
        "position_before": Position(3, 1),
        "position_after": Position(3, 7),
        "exact": True,
        "strategy": "headers",
    }
    return SkipResult(**(values | over))


def test_text_shows_counts_and_cursor():
    """The text has the numbers of messages and entries, and the cursor before and after."""
    text = described(_result()).plain
    assert text.splitlines() == ["skipped 6 messages in 6 entries", "cursor 3:1 → 3:7; counted by: headers"]


def test_text_of_an_inexact_skip():
    """A skip of fewer messages, its end inside a batch and redelivered messages are reported."""
    text = described(_result(exact=False, skipped_entries=1, batch_index=2, redelivered_entries=4)).plain
    assert "6 messages in 1 entry  (requested: 6 messages)" in text
    assert "before message 2 of the next batch" in text
    assert "will be redelivered: 4 acknowledged entries" in text


def test_each_character_of_a_map_has_one_meaning():
    """The legend of `look` has distinct characters for all kinds and states, also in ASCII."""
    for ascii_only in (0, 1):
        glyphs = [style[ascii_only] for style in map_of_topic._STYLES.values()]
        assert len(set(glyphs)) == len(glyphs)
