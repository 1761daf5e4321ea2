"""Whether the consumers of a Key_Shared subscription cover every slot once.

A slot that no sticky consumer covers stalls the whole subscription: the broker keeps that slot's messages, and at the
limit of what it keeps it stops reading for everybody. The admin API shows each consumer's ranges.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pulsar_ext._native import threads
from pulsar_ext.errors import AdminError, AdminNotFound, InvalidUse, SlotsNotCovered
from pulsar_ext.ids.text import counted
from pulsar_ext.ids.topic_name import TopicName

from .hash_ranges import KeyHashRange, KeyHashRanges
from .hashing import LAST, auto_split_slot, key_slot

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pulsar_ext.admin import PulsarAdmin, SubscriptionStats

__all__ = ["KeyCover", "UncoveredSlotsWarning", "cover_of", "demand_cover", "had_subscription", "key_cover"]

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
