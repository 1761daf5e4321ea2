"""Errors name the invalid argument."""

from __future__ import annotations

import pytest

from pulsar_ext import InvalidMessageId, InvalidUse, MessageId, auto_split_slot, key_slot
from pulsar_ext.chunks.resolver import seek_target
from pulsar_ext.produce.options import columns_of, rows_of


@pytest.mark.parametrize("slot_of", [key_slot, auto_split_slot])
def test_invalid_key_is_named(slot_of):
    """A key that is neither text nor bytes raises a TypeError with its value."""
    with pytest.raises(TypeError, match="A key must be a str or bytes, not None"):
        slot_of(None)


def test_column_of_wrong_length_is_named():
    """`send_many` with fewer keys than messages raises before anything is sent."""
    with pytest.raises(InvalidUse, match="one partition_key for each of the 2 messages, got 1"):
        next(rows_of([b"a", b"b"], columns_of(["k"], None, None, None, None)))


def test_seek_to_a_negative_time_raises():
    """A seek to a negative time raises an error with its value."""
    with pytest.raises(InvalidUse, match=r"seek\(-1\) must be a publish time in milliseconds"):
        seek_target(None, "topic", -1)


def test_dict_without_fields_names_the_missing_one():
    """A dict without fields raises an error that names the first missing field."""
    with pytest.raises(InvalidMessageId, match="'ledger_id' is missing"):
        MessageId.from_dict({})
