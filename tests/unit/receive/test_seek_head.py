"""C++ ids after which messages excluded by a seek cannot arrive any more."""

from __future__ import annotations

import pytest

from pulsar_ext._native.messages import InnerMessageId
from pulsar_ext.receive.seek_positions import Head


@pytest.mark.parametrize(
    ("other", "is_past"),
    [
        ((0, 5, 7, -1), True),
        ((0, 5, 9, 0), True),
        ((0, 5, 6, -1), False),
        ((0, 6, 0, -1), True),
        ((0, 4, 9, -1), False),
        ((1, 6, 0, -1), False),
    ],
)
@pytest.mark.parametrize("several_topics", [False, True])
def test_later_ledger_of_the_partition_is_past_the_head(other, is_past, several_topics):
    """A later ledger is past the head, as the sought one may be trimmed; with several topics it may be another's."""
    head = Head.of(InnerMessageId(0, 5, 7, 2), inclusive=True, several_topics=several_topics)
    same_ledger = other[1] == 5
    assert head.is_past(InnerMessageId(*other)) is (is_past and (same_ledger or not several_topics))
