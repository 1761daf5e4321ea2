"""Which C++ id says that what a seek leaves out has come, or never comes."""

from __future__ import annotations

import pytest

from pulsar_ext._native.messages import InnerMessageId
from pulsar_ext.receive.seek_places import Head


@pytest.mark.parametrize(
    ("other", "is_behind"),
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
def test_a_later_ledger_of_the_same_partition_is_behind(other, is_behind, several_topics):
    """The ledger that was sought may be trimmed; of several topics a later ledger may be another topic's."""
    head = Head.of(InnerMessageId(0, 5, 7, 2), inclusive=True, several_topics=several_topics)
    same_ledger = other[1] == 5
    assert head.is_behind(InnerMessageId(*other)) is (is_behind and (same_ledger or not several_topics))
