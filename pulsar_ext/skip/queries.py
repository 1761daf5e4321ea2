"""What the searches for a skip ask about a topic, besides what those for chunks ask (`chunks/search.py`)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pulsar_ext.ids.position import Position


@dataclass(frozen=True, slots=True)
class AskIndex:
    """The search needs to know which entry holds the message of an index; send its `Position`, None past the end."""

    index: int


@dataclass(frozen=True, slots=True)
class AskEntries:
    """The search needs the headers of several entries; send a list, with None where there is no entry."""

    positions: tuple[Position, ...]


@dataclass(frozen=True, slots=True)
class AskCount:
    """The search needs to know how many messages there are from `first` up to `end`, that entry not included.

    Send an int, or None if the broker cannot count them. What is acknowledged behind the end does not matter.
    """

    first: Position
    end: Position


@dataclass(frozen=True, slots=True)
class AskUnbatched:
    """The search needs to know whether every entry from `first` to `last` is one message or one chunk; send a bool."""

    first: Position
    last: Position


@dataclass(frozen=True, slots=True)
class AskBatchIndexAcks:
    """The search needs to know whether the broker can keep a cursor inside a batch; send a bool."""


class Strategy(Enum):
    """How messages were counted."""

    INDEX = "index"
    """By the broker's index of messages: a handful of requests, whatever the count."""
    ARITHMETIC = "arithmetic"
    """By the entries in each ledger, every entry being one message: a handful of requests, whatever the count."""
    ANALYSIS = "analysis"
    """By the broker, which reads the entries and says how many messages they hold."""
    HEADERS = "headers"
    """By the headers of every entry up to the boundary."""
    READER = "reader"
    """By reading the topic up to the boundary."""
    SUBSCRIPTION = "subscription"
    """By receiving what the subscription would deliver, which alone shows acknowledgements inside batches."""


@dataclass(frozen=True, slots=True)
class AskScan:
    """The search needs what comes next in a scan that begins at `first`; send a `ScanItem`, None at the topic's end."""

    strategy: Strategy
    first: Position
