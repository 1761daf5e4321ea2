"""How a Key_Shared subscription shares the slots, and what is refused before it is asked for.

The official policy takes `(5, 3)` and duplicates, which the broker refuses only after it made a durable subscription,
and ranges on a consumer of another type are ignored without a word.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import pulsar

from pulsar_ext.errors import InvalidKeyHashRange, InvalidUse

from .hash_ranges import KeyHashRanges, as_ranges

if TYPE_CHECKING:
    from .hash_ranges import KeyHashRange

__all__ = ["KeySharedPolicy", "check_key_shared", "sticky_ranges_of"]


class KeySharedPolicy(pulsar.ConsumerKeySharedPolicy, pulsar.KeySharedPolicy):  # type: ignore[misc]  # untyped officially
    """How the slots are shared, in Java's words; goes wherever an official `ConsumerKeySharedPolicy` goes.

    KeySharedPolicy.sticky_hash_range().ranges(KeyHashRange(0, 10000))
    KeySharedPolicy.auto_split_hash_range()
    """

    def __init__(self) -> None:
        pulsar.KeySharedPolicy.__init__(self)

    @classmethod
    def sticky_hash_range(cls) -> Self:
        """Give each consumer the slots that it asks for; add them with `ranges()`."""
        policy = cls()
        policy.set_key_shared_mode(pulsar.KeySharedMode.Sticky)
        return policy

    @classmethod
    def auto_split_hash_range(cls) -> Self:
        """Have the broker share the slots among whatever consumers there are."""
        policy = cls()
        policy.set_key_shared_mode(pulsar.KeySharedMode.AutoSplit)
        return policy

    def ranges(self, *ranges: KeyHashRange | tuple[int, int] | str) -> Self:
        """Set the consumer's slots.

        Raises:
            InvalidKeyHashRange: there are no ranges, one is not valid, or two overlap.
            InvalidUse: the broker splits the slots itself.
        """
        if self.get_key_shared_mode() != pulsar.KeySharedMode.Sticky:
            raise InvalidUse("Ranges go with sticky_hash_range(): with auto_split_hash_range() the broker makes them.")
        self.set_sticky_ranges([(one.start, one.end) for one in as_ranges(ranges)])
        return self

    def policy(self) -> Self:
        """Give the C++ policy, which is this one."""
        return self

    @property
    def key_shared_mode(self) -> Any:
        """Whether the slots are shared sticky or by auto-split."""
        return self.get_key_shared_mode()

    @property
    def allow_out_of_order_delivery(self) -> bool:
        """Whether a key's messages may overtake each other when consumers come and go."""
        return bool(self.is_allow_out_of_order_delivery())

    @property
    def sticky_ranges(self) -> list[tuple[int, int]]:
        """The consumer's slots, pairs of first and last."""
        return list(self.get_sticky_ranges())


def sticky_ranges_of(policy: Any) -> KeyHashRanges | None:
    """Give the slots that a policy, official or ours, asks for; None if the broker shares them out.

    Raises:
        InvalidKeyHashRange: there are no ranges, one is not valid, or two overlap.
    """
    if policy is None or policy.key_shared_mode != pulsar.KeySharedMode.Sticky:
        return None
    if not policy.sticky_ranges:
        raise InvalidKeyHashRange("Ranges for KeyShared policy must not be empty: add .ranges(…) to the sticky policy.")
    return KeyHashRanges(policy.sticky_ranges)


def check_key_shared(policy: Any, consumer_type: Any) -> None:
    """Refuse what would be ignored, or refused by the broker too late.

    Raises:
        InvalidKeyHashRange: as `sticky_ranges_of`.
        InvalidUse: there are ranges, and the type of the consumer is not Key_Shared.
    """
    if not isinstance(policy, pulsar.ConsumerKeySharedPolicy):
        return
    if sticky_ranges_of(policy) is not None and consumer_type != pulsar.ConsumerType.KeyShared:
        raise InvalidUse(
            f"A consumer of type {getattr(consumer_type, 'name', consumer_type)} would ignore its key ranges: use "
            "consumer_type=ConsumerType.KeyShared, or read with client.create_reader(key_hash_ranges=…)."
        )
