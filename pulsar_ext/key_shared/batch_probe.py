"""Whether a topic's batches let the broker share it among readers: look at some of them, through the admin API.

The broker counts entries and messages of the backlog, up to a limit of its own (10,000 entries by default). If it
counted all and they are as many, there is no batch to divide. Otherwise some entries, spread over the topic, are taken
apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pulsar_ext._wire.batch_payload import IS_BASE64, ORDERING_KEY, PARTITION_KEY, SEQUENCE_ID, batch_metadata
from pulsar_ext.errors import AdminError, AdminNotFound
from pulsar_ext.ids.position import Ledgers
from pulsar_ext.ids.topic_name import TopicName

from .hashing import key_slot, sticky_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pulsar_ext.admin import PulsarAdmin
    from pulsar_ext.ids.position import Position

    from .hash_ranges import KeyHashRanges

__all__ = ["StickyKey", "batch_keys", "probe_batches"]

_LOOKED_AT = 64


class StickyKey(NamedTuple):
    """What decides the slot of one message.

    Args:
        key: its ordering key, else its key, else what the broker takes instead: producer name and sequence id.
        is_given: whether the message has a key.
    """

    key: bytes
    is_given: bool


def batch_keys(payload: bytes, size: int, producer_name: str) -> list[StickyKey] | None:
    """Return what decides the slot of each message of a batch; None if it cannot be read, as an encrypted one."""
    keys = []
    for message in batch_metadata(payload, size) or ():
        key, ordering, sequence_id = (message.get(field) for field in (PARTITION_KEY, ORDERING_KEY, SEQUENCE_ID))
        if isinstance(key, int) or isinstance(ordering, int) or isinstance(sequence_id, bytes):
            return None
        try:
            resolved = sticky_key(
                None if key is None else key.decode(),
                ordering_key=ordering,
                is_base64=bool(message.get(IS_BASE64)),
                producer_name=producer_name,
                sequence_id=sequence_id or 0,
            )
        except ValueError:
            return None
        keys.append(StickyKey(resolved, is_given=key is not None or ordering is not None))
    return keys or None


def probe_batches(
    admin: PulsarAdmin, topic: str, subscription: str, parts: Sequence[KeyHashRanges]
) -> tuple[bool, str]:
    """Find out whether each batch belongs to one part of the slots.

    Args:
        admin: the admin API.
        topic: with or without partitions.
        subscription: whose backlog is what will be read.
        parts: the slots of each reader.

    Returns:
        Whether the broker can filter, and why, in a sentence.
    """
    name = TopicName.parse(topic)
    try:
        topics = name.parts(admin.partitions(name))
        backlogs = [admin.analyze_backlog(each, subscription) for each in topics]
        entries, messages = sum(one.entries for one in backlogs), sum(one.messages for one in backlogs)
        aborted = any(one.aborted for one in backlogs)
        if not entries:
            return False, "there is nothing to read yet, so nothing shows how producers make their batches"
        if entries == messages and not aborted:
            return True, f"none of the {entries:,} entries is a batch of several messages"
        looked = 0
        for each in topics:
            ledgers = Ledgers(admin.internal_stats(each).ledger_sizes())
            for position in _spread(ledgers, _LOOKED_AT // len(topics) + 1):
                why = _objection(admin, str(each), position, parts)
                if why is not None:
                    return False, why
                looked += 1
    except AdminError as error:
        return False, f"the admin API could not show how the batches are made: {error}"
    return True, (
        f"each of {looked} entries looked at, of {'more than ' if aborted else ''}{entries:,}, belongs to one reader; "
        "a batch that does not would raise MisroutedMessage"
    )


def _objection(admin: PulsarAdmin, topic: str, position: Position, parts: Sequence[KeyHashRanges]) -> str | None:
    """Say why an entry does not let the broker filter; None if it does."""
    try:
        entry = admin.entry(topic, position.ledger_id, position.entry_id, payload=True)
    except AdminNotFound:
        return None  # trimmed, so it will not be read either
    if entry.num_messages_in_batch in (None, 1):
        return None
    size = entry.num_messages_in_batch or 0
    keys = None if entry.encrypted else batch_keys(entry.payload or b"", size, entry.producer_name)
    if keys is None:
        return f"entry {position} is a batch that cannot be looked into"
    slots = {key_slot(one.key) for one in keys}
    owners = {index for slot in slots for index, part in enumerate(parts) if part.contains(slot)}
    if len(owners) > 1:
        return f"entry {position} is a batch of {size} messages that belong to {len(owners)} readers"
    return None


def _spread(ledgers: Ledgers, count: int) -> Iterator[Position]:
    """Give entries spread evenly over a topic's ledgers, the first and the last among them."""
    total = 0 if ledgers.last is None else ledgers.up_to(ledgers.last)
    for number in sorted({1 + round(turn * (total - 1) / max(count - 1, 1)) for turn in range(count)}):
        at = ledgers.number(number)
        if at is not None:
            yield at
