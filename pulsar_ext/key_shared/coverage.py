"""Slots of a Key_Shared subscription's consumers, and the keys in a topic's batches, by the admin API.

A slot that no sticky consumer covers stalls the whole subscription: the broker keeps that slot's messages, and when it
keeps too many, it stops dispatching to all consumers. `KeyCover` has each consumer's ranges.

`probe_batches` determines whether a topic's batches let the broker distribute them to readers. The broker counts
entries and messages of the backlog, up to its own limit (10,000 entries by default). If it counted all and both numbers
are equal, there is no batch with several messages. Otherwise the batches of some entries, spread over the topic, are
read.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

from pulsar_ext._native import threads
from pulsar_ext._wire.batch_payload import IS_BASE64, ORDERING_KEY, PARTITION_KEY, SEQUENCE_ID, batch_metadata
from pulsar_ext.admin import PulsarAdmin, SubscriptionStats
from pulsar_ext.errors import AdminError, AdminNotFound, InvalidUse, SlotsNotCovered
from pulsar_ext.ids.position import Ledgers, Position
from pulsar_ext.ids.text import counted
from pulsar_ext.ids.topic_name import TopicName

from .hash_ranges import KeyHashRange, KeyHashRanges
from .hashing import LAST, auto_split_slot, key_slot, sticky_key

_POLL_SECONDS = 0.1
_UNASSIGNED = KeyHashRanges([KeyHashRange(0, 0)])
"""Slot 0, which the broker assigns to no key, and excludes when it splits the slots itself."""


class UncoveredSlotsWarning(UserWarning):
    """Slots of a Key_Shared subscription have no consumer, which stalls all its consumers."""


@dataclass(frozen=True, slots=True)
class KeyCover:
    """Consumers of the slots of a subscription on one topic or partition.

    Args:
        topic: the topic's full name.
        subscription: the subscription's name.
        mode: the broker's key-shared mode, `STICKY` or `AUTO_SPLIT`; empty without consumers.
        consumers: each consumer's name and slots.
        uncovered: slots without a consumer, except slot 0, which no key has.
        overlapping: slots with more than one consumer.
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
        return cls(topic, subscription, mode, named, (covered | _UNASSIGNED).complement(), overlapping)

    @property
    def covered(self) -> KeyHashRanges:
        """The slots of at least one consumer."""
        return reduce(KeyHashRanges.__or__, (ranges for _, ranges in self.consumers), KeyHashRanges.empty())

    @property
    def is_exact(self) -> bool:
        """True if every slot has exactly one consumer."""
        return self.uncovered.is_empty and self.overlapping.is_empty

    def slot_of(self, key: str | bytes) -> int:
        """Return the slot of a key, in the broker's numbering for this subscription.

        With fixed ranges this is `key_slot`. If the broker splits the slots, it is `auto_split_slot`, unless a consumer
        also has slot 0: that broker does not use consistent hashing, and numbers the slots as `key_slot`.

        Args:
            key: as for `key_slot`.
        """
        counts_from_1 = self.mode == "AUTO_SPLIT" and not any(ranges.contains(0) for _, ranges in self.consumers)
        return auto_split_slot(key) if counts_from_1 else key_slot(key)

    def consumers_of(self, key: str | bytes) -> tuple[str, ...]:
        """Return the names of the consumers of a key's slot: one, unless the slot is uncovered or overlapping.

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
    """Return the cover of a subscription on a topic, or on each partition of a partitioned topic.

    Raises:
        AdminNotFound: the topic or the subscription does not exist.
        InvalidUse: the subscription is not Key_Shared.
    """
    name = TopicName.parse(topic)
    covers = []
    for each in map(str, name.parts(admin.partitions(name))):
        found = admin.stats(each).subscriptions.get(subscription)
        if found is None:
            raise AdminNotFound(
                f"Subscription {subscription!r} not found on {each}.", status=404, reason="Subscription not found"
            )
        if found.type not in ("Key_Shared", "", "None"):
            raise InvalidUse(
                f"The subscription must be Key_Shared, but {subscription!r} on {each} is {found.type}; other types "
                "have no slots."
            )
        covers.append(cover_of(each, subscription, found))
    return covers


def cover_of(topic: str, subscription: str, stats: SubscriptionStats) -> KeyCover:
    """Return the cover that a Key_Shared subscription's statistics show."""
    return KeyCover.of(topic, subscription, _consumers(stats), stats.raw.get("keySharedMode") or "")


def wait_for_cover(admin: PulsarAdmin, topics: Sequence[str], subscription: str, wait_seconds: float = 0.0) -> None:
    """Wait until every slot of a subscription has exactly one consumer."""
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
        threads.sleep(_POLL_SECONDS)


def had_subscription(admin: PulsarAdmin, topic: str, subscription: str) -> bool:
    """Return whether the subscription exists; True if the admin API cannot be asked."""
    try:
        return subscription in admin.subscriptions(topic)
    except AdminError as error:
        return not isinstance(error, AdminNotFound)


def _consumers(stats: SubscriptionStats) -> Iterable[tuple[str, KeyHashRanges]]:
    for consumer in stats.raw.get("consumers") or ():
        texts = [text.strip("[]").split(",") for text in consumer.get("keyHashRanges") or ()]
        found = [(int(start), int(end)) for start, end in consumer.get("keyHashRangeArrays") or texts]
        # A broker without consistent hashing reports 65536 as the end of its last range, which is not a slot.
        ranges = [(start, min(end, LAST)) for start, end in found if start <= LAST]
        yield consumer.get("consumerName", ""), KeyHashRanges(ranges) if ranges else KeyHashRanges.empty()


_SAMPLED_ENTRIES = 64


class StickyKey(NamedTuple):
    """Key that determines the slot of one message."""

    key: bytes
    is_given: bool


def batch_keys(payload: bytes, size: int, producer_name: str) -> list[StickyKey] | None:
    """Return the sticky key of each message of a batch; None if the batch is unreadable, such as an encrypted one."""
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
    """Determine whether each batch belongs to one part of the slots."""
    name = TopicName.parse(topic)
    try:
        topics = name.parts(admin.partitions(name))
        backlogs = [admin.analyze_backlog(each, subscription) for each in topics]
        entries, messages = sum(one.entries for one in backlogs), sum(one.messages for one in backlogs)
        aborted = any(one.aborted for one in backlogs)
        if not entries:
            return False, "there is nothing to read yet, so the batches of the producers are unknown"
        if entries == messages and not aborted:
            return True, f"none of the {entries:,} entries is a batch of several messages"
        sampled = 0
        for each in topics:
            ledgers = Ledgers(admin.internal_stats(each).ledger_sizes())
            for position in _spread(ledgers, _SAMPLED_ENTRIES // len(topics) + 1):
                why = _objection(admin, str(each), position, parts)
                if why is not None:
                    return False, why
                sampled += 1
    except AdminError as error:
        return False, f"the admin API could not show the batches: {error}"
    return True, (
        f"each of {sampled} sampled entries, of {'more than ' if aborted else ''}{entries:,}, belongs to one reader; "
        "a batch that does not would raise MisroutedMessage"
    )


def _objection(admin: PulsarAdmin, topic: str, position: Position, parts: Sequence[KeyHashRanges]) -> str | None:
    """Return the reason why an entry prevents filtering by the broker; None if it does not."""
    try:
        entry = admin.entry(topic, position.ledger_id, position.entry_id, payload=True)
    except AdminNotFound:
        return None  # trimmed, so it will not be read either
    if entry.num_messages_in_batch in (None, 1):
        return None
    size = entry.num_messages_in_batch or 0
    keys = None if entry.encrypted else batch_keys(entry.payload or b"", size, entry.producer_name)
    if keys is None:
        return f"entry {position} is a batch that cannot be read"
    slots = {key_slot(one.key) for one in keys}
    owners = {index for slot in slots for index, part in enumerate(parts) if part.contains(slot)}
    if len(owners) > 1:
        return f"entry {position} is a batch of {size} messages that belong to {len(owners)} readers"
    return None


def _spread(ledgers: Ledgers, count: int) -> Iterator[Position]:
    """Yield entries spread evenly over a topic's ledgers, including the first and the last."""
    if total := ledgers.entries:
        numbers = {1 + round(turn * (total - 1) / max(count - 1, 1)) for turn in range(count)}
        yield from (ledgers[number] for number in sorted(numbers))
