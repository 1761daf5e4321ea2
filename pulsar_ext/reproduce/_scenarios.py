"""The scenarios by name, in the order of the table; those of one profile are adjacent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Final

from pulsar_ext.errors import InvalidUse

from ._support import Scenario

GROUPS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = MappingProxyType(
    {
        "chunks": (
            "chunked messages are not found by a stored id, not redelivered, or confirmed and lost",
            (
                "chunk-seek",
                "chunk-seek-in-flight",
                "chunk-reader-start",
                "chunk-ack-deserialized",
                "chunk-ack-rebuilt",
                "chunk-nack",
                "chunk-restart",
                "chunk-cut",
                "chunk-queue-full",
                "async-chunk-send-id",
            ),
        ),
        "skip and seek": (
            "a skip counts batches instead of messages; a seek drops later messages, or silently fails",
            (
                "skip-mid-chunk",
                "skip-batched",
                "seek-beyond-end",
                "seek-one-partition",
                "seek-cut",
                "async-seek-earliest",
            ),
        ),
        "keys": (
            "Key_Shared consumers receive messages of other consumers' keys, or stall",
            ("key-shared-batch-misroute", "key-shared-uncovered-stall"),
        ),
        "receiving": (
            "a Ctrl-C or a timeout loses the next message; a loop ends early; a listener stops",
            (
                "interrupted-receive",
                "async-cancelled-receive",
                "reader-ends-early",
                "no-queue-batch",
                "listener-dropped",
                "table-view-big",
                "pattern-discovery",
                "batch-parse-garbage",
            ),
        ),
        "acknowledgements": (
            "they are lost with a connection or a process, or cover more messages than intended",
            (
                "ack-lost-on-crash",
                "ack-disconnected",
                "ack-then-reset",
                "ack-batch-index",
                "batch-partly-acknowledged",
                "dead-letter-batch",
            ),
        ),
        "producers": (
            "deduplication drops or duplicates messages; a raising callback, or a rejected message, blocks the rest",
            ("dedup-batch-loss", "dedup-batch-duplicates", "sequence-id-zero", "callback-raises", "send-refused"),
        ),
        "processes": (
            "a program that ends or forks loses messages, receives them again, hangs or aborts",
            ("exit-pending", "exit-sending", "exit-acknowledged", "forked-client"),
        ),
    }
)
"""Groups of scenarios: for each, the defects in one line, and the scenarios that show them."""


def _load() -> dict[str, Scenario]:
    found = [_scenario_of(name) for _, names in GROUPS.values() for name in names]
    profiles = list(dict.fromkeys(scenario.profile for scenario in found))
    return {one.name: one for one in sorted(found, key=lambda one: profiles.index(one.profile))}


def _scenario_of(name: str) -> Scenario:
    module = import_module(f".{name.replace('-', '_')}", __package__)
    profile = getattr(module, "PROFILE", "plain")
    return Scenario(name, module.CLAIM, module.REFERENCE, module.run, profile)


SCENARIOS: Final[Mapping[str, Scenario]] = MappingProxyType(_load())


def select(names: Iterable[str]) -> list[Scenario]:
    """Return the scenarios with these names in the order of the table; all of them without names.

    Raises:
        InvalidUse: a name is unknown.
    """
    wanted = list(names)
    unknown = [name for name in wanted if name not in SCENARIOS]
    if unknown:
        raise InvalidUse(f"unknown scenario {', '.join(unknown)}; choose from: {', '.join(SCENARIOS)}")
    return [scenario for name, scenario in SCENARIOS.items() if not wanted or name in wanted]
