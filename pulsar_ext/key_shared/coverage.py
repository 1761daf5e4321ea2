"""What the admin API shows of a Key_Shared subscription: the slots that consumers cover, and the keys in batches.

A slot that no sticky consumer covers stalls the whole subscription: the broker keeps that slot's messages, and at the
limit of what it keeps it stops reading for everybody. `KeyCover` has each consumer's ranges.

`probe_batches` finds whether a topic's batches let the broker share it among readers. The broker counts entries and
messages of the backlog, up to a limit of its own (10,000 entries by default). If it counted all and they are as many,
there is no batch to divide. Otherwise the batches of some entries, spread over the topic, are read.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pulsar_ext._native import threads
from pulsar_ext._wire.batch_payload import IS_BASE64, ORDERING_KEY, PARTITION_KEY, SEQUENCE_ID, batch_metadata
from pulsar_ext.errors import AdminError, AdminNotFound, InvalidUse, SlotsNotCovered
from pulsar_ext.ids.position import Ledgers
from pulsar_ext.ids.text import counted
from pulsar_ext.ids.topic_name import TopicName

from .hash_ranges import KeyHashRange, KeyHashRanges
from .hashing import LAST, auto_split_slot, key_slot, sticky_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pulsar_ext.admin import PulsarAdmin, SubscriptionStats
    from pulsar_ext.ids.position import Position


_PAUSE_SECONDS = 0.1
_NEVER = KeyHashRanges([KeyHashRange(0, 0)])
"""The broker gives no key slot 0, and leaves it out where it splits the slots itself."""


class UncoveredSlotsWarning(UserWarning):
    """Slots of a Key_Shared subscription have no consumer, which stalls the consumers that there are."""


@dataclass(frozen=True, slots=True)
class KeyCover:
    """Who covers which slots of one topic's, or one partition's, subscription.

    Args:
        topic: the topic's full name.
        subscription: the subscription's name.
        mode: the broker's word for how slots are shared, `STICKY` or `AUTO_SPLIT`; empty without consumers.
        consumers: each consumer's name and slots.
        uncovered: slots of no consumer; slot 0, which no key has, is not among them.
        overlapping: slots of more than one.
    """

    topic: str
    subscription: str
    mode: str
    consumers: tuple[tuple[str, KeyHashRanges], ...]
    uncovered: KeyHashRanges
    overlapping: KeyHashRanges

    @classmethod
    def of(
        cls, topic: str, subscription: str, consumers: Iterable[tuple[str, KeyHashRanges]], mode: str = "STICKY"
    ) -> KeyCover:
        """Compute the cover from each consumer's slots."""
        named = tuple(consumers)
        covered = overlapping = KeyHashRanges.empty()
        for _, ranges in named:
            overlapping |= covered & ranges
            covered |= ranges
        return cls(topic, subscription, mode, named, (covered | _NEVER).complement(), overlapping)

    @property
    def covered(self) -> KeyHashRanges:
        """The slots of at least one consumer."""
        covered = KeyHashRanges.empty()
        for _, ranges in self.consumers:
            covered |= ranges
        return covered

    @property
    def is_exact(self) -> bool:
        """Whether every slot has one consumer."""
        return self.uncovered.is_empty and self.overlapping.is_empty

    def slot_of(self, key: str | bytes) -> int:
        """Compute the slot of a key as the broker numbers the slots of this subscription.

        That is `key_slot` where the ranges are fixed. Where the broker splits the slots it is `auto_split_slot`, unless
        a consumer has slot 0 too: then the broker splits them without consistent hashing, and it is `key_slot`.

        Args:
            key: as for `key_slot`.
        """
        counts_from_1 = self.mode == "AUTO_SPLIT" and not any(ranges.contains(0) for _, ranges in self.consumers)
        return auto_split_slot(key) if counts_from_1 else key_slot(key)

    def consumers_of(self, key: str | bytes) -> tuple[str, ...]:
        """Name the consumers that have the slot of a key: one, unless the slot is uncovered or overlapping.

        Args:
            key: as for `key_slot`.
        """
        slot = self.slot_of(key)
        return tuple(name for name, ranges in self.consumers if ranges.contains(slot))

    def __str__(self) -> str:
        faults = [
            f"{counted(ranges.slots, 'slot')} {what} ({ranges})"
            for what, ranges in (("uncovered", self.uncovered), ("overlapping", self.overlapping))
            if not ranges.is_empty
        ]
        count = counted(len(self.consumers), "consumer")
        return f"{self.subscription} on {self.topic}, {count}: {'; '.join(faults) or 'every slot covered once'}"


def key_cover(admin: PulsarAdmin, topic: str, subscription: str) -> list[KeyCover]:
    """Ask the broker who covers which slots: one answer for a topic, one a partition for a partitioned one.

    Raises:
        AdminNotFound: no such topic, or no such subscription.
        InvalidUse: the subscription is not Key_Shared.
    """
    name = TopicName.parse(topic)
    topics = [str(name.partition(index)) for index in range(admin.partitions(name))] or [str(name)]
    covers = []
    for each in topics:
        found = admin.stats(each).subscriptions.get(subscription)
        if found is None:
            raise AdminNotFound(
                f"There is no subscription {subscription!r} on {each}.", status=404, reason="Subscription not found"
            )
        if found.type not in ("Key_Shared", "", "None"):
            raise InvalidUse(f"Subscription {subscription!r} on {each} is {found.type}: only Key_Shared shares slots.")
        covers.append(cover_of(each, subscription, found))
    return covers


def cover_of(topic: str, subscription: str, stats: SubscriptionStats) -> KeyCover:
    """Read who covers which slots from a Key_Shared subscription's statistics."""
    return KeyCover.of(topic, subscription, _consumers(stats), stats.raw.get("keySharedMode") or "")


def demand_cover(admin: PulsarAdmin, topics: Sequence[str], subscription: str, wait_seconds: float = 0.0) -> None:
    """Wait until every slot of a subscription has one consumer.

    Raises:
        SlotsNotCovered: it did not come to that in time.
        AdminError: the admin API does not answer.
    """
    deadline = time.monotonic() + wait_seconds
    while True:
        faults = [cover for topic in topics for cover in key_cover(admin, topic, subscription) if not cover.is_exact]
        if not faults:
            return
        if time.monotonic() >= deadline:
            raise SlotsNotCovered(
                f"{'; '.join(map(str, faults))}. Uncovered slots stall every consumer of the subscription; start "
                "consumers for them, or use KeySharedPolicy.auto_split_hash_range().",
                uncovered=faults[0].uncovered,
                overlapping=faults[0].overlapping,
            )
        threads.sleep(_PAUSE_SECONDS)


def had_subscription(admin: PulsarAdmin, topic: str, subscription: str) -> bool:
    """Whether the subscription exists already; taken to exist if the admin API cannot say."""
    try:
        return subscription in admin.subscriptions(topic)
    except AdminNotFound:
        return False
    except AdminError:
        return True


def _consumers(stats: SubscriptionStats) -> Iterable[tuple[str, KeyHashRanges]]:
    for consumer in stats.raw.get("consumers") or ():
        texts = [text.strip("[]").split(",") for text in consumer.get("keyHashRanges") or ()]
        found = [(int(start), int(end)) for start, end in consumer.get("keyHashRangeArrays") or texts]
        # A broker without consistent hashing has its last range end at 65536, which is no slot.
        ranges = [(start, min(end, LAST)) for start, end in found if start <= LAST]
        yield consumer.get("consumerName", ""), KeyHashRanges(ranges) if ranges else KeyHashRanges.empty()


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
