"""The broker's side of the soak: its settings, the faults, and its contents."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Final

from soak_rig import ONCE, PLAIN

from pulsar_ext.errors import PulsarExtError

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from pulsar_ext import PulsarAdmin
    from pulsar_ext.testing import FaultProxy, PulsarProcess

__all__ = ["SETTINGS", "Side", "backlogs", "prepare"]

SETTINGS: Final = {
    "acknowledgmentAtBatchIndexLevelEnabled": True,
    # Acknowledged entries are kept for two minutes: readers, seeks and resets can read them, and no disk fills up.
    "defaultRetentionTimeInMinutes": 2,
    "defaultRetentionSizeInMB": 256,
    "retentionCheckIntervalInSeconds": 30,
    "managedLedgerMaxLedgerRolloverTimeMinutes": 1,
    "managedLedgerMaxEntriesPerLedger": 5_000,
    "logSizeLimit": 67_108_864,
    "gcWaitTime": 30_000,
    "journalMaxSizeMB": 64,
    "journalMaxBackups": 1,
}
_PARTITIONS: Final = 3
_WEIGHTS: Final = {"unload": 4, "cut": 4, "silent": 2, "reset": 2}
_BETWEEN_SECONDS: Final = (3.0, 8.0)
_SILENT_SECONDS: Final = (1.0, 6.0)
_KILL_SECONDS: Final = (90.0, 240.0)
_STEP_SECONDS: Final = 0.5


def prepare(admin: PulsarAdmin) -> None:
    """Create the namespace that deduplicates, and the topic of several partitions."""
    namespace = ONCE.removeprefix("persistent://").rstrip("/")
    admin.create_namespace(namespace)
    admin.set_deduplication(namespace, True)  # noqa: FBT003  # its only argument
    admin.create_partitioned_topic(f"{PLAIN}partitioned", _PARTITIONS)


def _topics(admin: PulsarAdmin) -> list[str]:
    found: list[str] = []
    for prefix in (PLAIN, ONCE):
        found += admin.topics(prefix.removeprefix("persistent://").rstrip("/"))
    return [topic for topic in found if "/__" not in topic]


def backlogs(admin: PulsarAdmin) -> dict[str, int]:
    """Return the backlog of each durable subscription in entries; -1 for a topic whose statistics are unavailable."""
    left: dict[str, int] = {}
    try:
        topics = _topics(admin)
    except PulsarExtError:
        return {"the broker": -1}
    for topic in topics:
        try:
            subscriptions = admin.stats(topic, precise_backlog=True).subscriptions
        except PulsarExtError:
            left[topic] = -1
            continue
        short = topic.removeprefix(PLAIN).removeprefix(ONCE)
        left |= {f"{short}, {name}": one.backlog_entries for name, one in subscriptions.items() if one.durable}
    return left


class Side:
    """Injects one fault after the other, a few seconds apart."""

    def __init__(
        self,
        broker: PulsarProcess,
        proxy: FaultProxy,
        admin: PulsarAdmin,
        command: Callable[[str], None],
        dice: random.Random,
        *,
        kills: bool,
    ) -> None:
        self._broker, self._proxy, self._admin, self._command, self._dice = broker, proxy, admin, command, dice
        self._kills, self.draining = kills, False
        self._next = time.monotonic() + self._dice.uniform(*_BETWEEN_SECONDS)
        self._next_kill = time.monotonic() + self._dice.uniform(*_KILL_SECONDS)

    def next_fault(self) -> str:
        """Wait for a moment, and inject a fault if one is due; return its name, or an empty text."""
        time.sleep(_STEP_SECONDS)
        if time.monotonic() < self._next:
            return ""
        if self._kills and time.monotonic() > self._next_kill:
            fault = "kill"
            self._next_kill = time.monotonic() + self._dice.uniform(*_KILL_SECONDS)
        else:
            fault = self._dice.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
        getattr(self, f"_{fault}")()
        self._next = time.monotonic() + self._dice.uniform(*_BETWEEN_SECONDS)
        return fault

    def stored(self) -> tuple[int, float]:
        """Return the backlog of all subscriptions in entries, and the stored size in MiB; -1 and 0 if unknown."""
        backlog, size = 0, 0
        try:
            for topic in _topics(self._admin):
                stats = self._admin.stats(topic)
                backlog += sum(one.backlog_entries for one in stats.subscriptions.values())
                size += stats.storage_size
        except PulsarExtError:
            return -1, -1.0
        return backlog, round(size / 2**20, 1)

    def _unload(self) -> None:
        """Unload one topic, or all at once."""
        with contextlib.suppress(PulsarExtError):
            topics = _topics(self._admin)
            for topic in topics if self._dice.random() < 0.2 else [self._dice.choice(topics)]:
                self._admin.unload(topic)

    def _cut(self) -> None:
        self._proxy.cut()

    def _silent(self) -> None:
        """Block all data for some seconds, and then pass it, or reset these connections."""
        self._proxy.pause()
        time.sleep(self._dice.uniform(*_SILENT_SECONDS))
        if self._dice.random() < 0.5:
            self._proxy.cut()
        self._proxy.resume()

    def _reset(self) -> None:
        self._command("reset")

    def _kill(self) -> None:
        self._broker.kill()
        self._broker.restart()
