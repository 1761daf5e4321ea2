"""A message id's numbers: checked, and as plain dictionaries (pure)."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from pulsar_ext._wire.message_id_data import MessageIdData
from pulsar_ext.errors import InvalidMessageId

from .origin import Origin

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .order import OrderKey

__all__ = ["bare", "check_fields", "checked_order", "dict_of", "fields_of", "origin_of"]


_MAX_POSITION = (1 << 63) - 1
_MAX_INDEX = (1 << 31) - 1


def bare(fields: MessageIdData) -> MessageIdData:
    """Give the id of the whole entry: without a batch index, size and first chunk."""
    return MessageIdData(fields.ledger_id, fields.entry_id, fields.partition)


def dict_of(fields: MessageIdData) -> dict[str, Any]:
    """Give an id's numbers by name."""
    named: dict[str, Any] = {
        "ledger_id": fields.ledger_id,
        "entry_id": fields.entry_id,
        "partition": fields.partition,
        "batch_index": fields.batch_index,
    }
    if fields.batch_size:
        named["batch_size"] = fields.batch_size
    if fields.first_chunk is not None:
        named["first_chunk"] = dict_of(fields.first_chunk)
    return named


def fields_of(fields: Mapping[str, Any], *, nested: bool = False) -> MessageIdData:
    """Read numbers by name, as `MessageId.to_dict()` writes them.

    Raises:
        InvalidMessageId: a number is missing or not an integer.
    """
    try:
        first = None if nested or fields.get("first_chunk") is None else fields_of(fields["first_chunk"], nested=True)
        return MessageIdData(
            ledger_id=_integer(fields["ledger_id"]),
            entry_id=_integer(fields["entry_id"]),
            partition=_integer(fields.get("partition", -1)),
            batch_index=_integer(fields.get("batch_index", -1)),
            batch_size=_integer(fields.get("batch_size", 0)),
            first_chunk=first,
        )
    except KeyError as error:
        raise InvalidMessageId(f"This is not a message id as to_dict() writes it: {error} is missing.") from None
    except (TypeError, AttributeError) as error:
        raise InvalidMessageId(f"This is not a message id as to_dict() writes it: {error!r}.") from None


def origin_of(fields: Mapping[str, Any]) -> Origin:
    """Read an id's origin, as `MessageId.to_dict()` writes it.

    Raises:
        InvalidMessageId: it is not an origin.
    """
    try:
        return Origin(fields.get("origin", Origin.NUMBERS.value))
    except ValueError as error:
        raise InvalidMessageId(f"This is not a message id as to_dict() writes it: {error}.") from None


def _integer(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{value!r} is not an integer")
    return value


def checked_order(partition: int, ledger_id: int, entry_id: int, batch_index: int) -> OrderKey:
    """Give the numbers of an id as ids are ordered by them.

    Raises:
        TypeError: one of them is not an integer.
        InvalidMessageId: as `_check_numbers()`.
    """
    ledger, entry, part, batch = map(operator.index, (ledger_id, entry_id, partition, batch_index))
    _check_numbers(part, ledger, entry, batch)
    return ledger, entry, part, batch


def _check_numbers(partition: int, ledger_id: int, entry_id: int, batch_index: int) -> None:
    """Refuse numbers that no id can have.

    Raises:
        InvalidMessageId: one of them is below -1 or too large.
    """
    if (
        -1 <= partition <= _MAX_INDEX
        and -1 <= ledger_id <= _MAX_POSITION
        and -1 <= entry_id <= _MAX_POSITION
        and -1 <= batch_index <= _MAX_INDEX
    ):
        return
    raise InvalidMessageId(
        f"partition {partition}, ledger {ledger_id}, entry {entry_id}, batch index {batch_index}: each must be -1 or "
        "more, and fit into 64 bits (ledger and entry) or 32 bits."
    )


def check_fields(fields: MessageIdData) -> None:
    """Refuse a serialized id with numbers that no id can have.

    Raises:
        InvalidMessageId: as `_check_numbers`, also for its first chunk, or the size of its batch is negative.
    """
    for one in (fields, fields.first_chunk):
        if one is not None:
            _check_numbers(one.partition, one.ledger_id, one.entry_id, one.batch_index)
    if fields.batch_size < 0:
        raise InvalidMessageId(f"A batch cannot have {fields.batch_size} messages.")
