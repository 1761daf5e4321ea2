"""Errors say which argument is wrong, in the words of this library."""

from __future__ import annotations

import pytest

from pulsar_ext import InvalidMessageId, InvalidUse, MessageId, auto_split_slot, key_slot
from pulsar_ext.chunks.resolver import seek_target
from pulsar_ext.produce.options import columns_of, rows_of


@pytest.mark.parametrize("slot_of", [key_slot, auto_split_slot])
def test_a_key_of_another_type_is_named(slot_of):
    """The slot of what is neither text nor bytes is a TypeError that shows it."""
    with pytest.raises(TypeError, match="A key must be a str or bytes, not None"):
        slot_of(None)


def test_a_column_of_another_length_is_named():
    """`send_many` with fewer keys than messages says so before anything is sent."""
    with pytest.raises(InvalidUse, match="one partition_key for each of the 2 messages, got 1"):
        next(rows_of([b"a", b"b"], columns_of(["k"], None, None, None, None)))


def test_a_time_before_1970_is_no_place():
    """A seek to a negative time is refused by its value."""
    with pytest.raises(InvalidUse, match=r"seek\(-1\) must be a publish time in milliseconds"):
        seek_target(None, "topic", -1)


def test_a_dict_without_numbers_names_what_is_missing():
    """An empty dict is no message id, and the error names the field."""
    with pytest.raises(InvalidMessageId, match="'ledger_id' is missing"):
        MessageId.from_dict({})
