"""The broker that answers: its version, and its settings without which a guarantee does not hold (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_DEDUPLICATION: Final = "brokerDeduplicationEnabled"
_NEEDED: Final = "true"
_EFFECTS: Final = {
    "acknowledgmentAtBatchIndexLevelEnabled": (
        "a batch that is acknowledged in part is delivered whole to the next consumer; no skip ends inside a batch"
    ),
    _DEDUPLICATION: "producers with deduplication=True need PulsarAdmin.set_deduplication() for their namespace",
    "delayedDeliveryEnabled": (
        "messages with deliver_at or deliver_after, those of retry topics included, are delivered at once"
    ),
    "allowAutoTopicCreation": (
        "dead letter and retry topics must be created; without them their messages are redelivered"
    ),
    "subscriptionKeySharedEnable": "Key_Shared subscriptions are rejected",
}
"""The effect of each setting if it is not `_NEEDED`."""


@dataclass(frozen=True, slots=True)
class MissingSetting:
    """Setting of the broker that a guarantee needs.

    Args:
        name: of the setting, as in `broker.conf`.
        value: its present value.
        needed: the value that the guarantee needs.
        effect: what happens without it.
    """

    name: str
    value: str
    needed: str
    effect: str

    def __str__(self) -> str:
        """Return the setting and its effect in one sentence."""
        return f"{self.name}={self.value}: {self.effect}"


def missing_settings(settings: Mapping[str, str], *, is_deduplicated: bool | None) -> tuple[MissingSetting, ...]:
    """Return the settings that lack the value which a guarantee needs, of those that the broker has.

    `is_deduplicated` is the namespace's own policy, None if it has none.
    """
    return tuple(
        MissingSetting(name, found, _NEEDED, effect)
        for name, effect in _EFFECTS.items()
        if (found := settings.get(name, _NEEDED)) != _NEEDED and not (name == _DEDUPLICATION and is_deduplicated)
    )
