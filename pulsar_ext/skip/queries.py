"""Queries that the searches for a skip send, besides those of `chunks/search.py`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pulsar_ext.ids.position import Position


@dataclass(frozen=True, slots=True)
class AskIndex:
    """Ask for the entry that holds the message with an index; the answer is its `Position`, None past the end."""

    index: int


@dataclass(frozen=True, slots=True)
class AskEntries:
    """Ask for the headers of several entries; the answer is a list, with None for a missing entry."""

    positions: tuple[Position, ...]


@dataclass(frozen=True, slots=True)
class AskCount:
    """Ask for the number of messages from `first` up to the entry `end`, which is excluded.

    The answer is an int, or None if the broker cannot count them. Acknowledgements after `end` make no difference.
    """

    first: Position
    end: Position


@dataclass(frozen=True, slots=True)
class AskUnbatched:
    """Ask if every entry from `first` to `last` is one message or one chunk; the answer is a bool."""

    first: Position
    last: Position


@dataclass(frozen=True, slots=True)
class AskBatchIndexAcks:
    """Ask if the broker persists acknowledgements inside a batch; the answer is a bool."""


class Strategy(Enum):
    """Method by which messages were counted."""

    INDEX = "index"
    """The broker's message index: a few requests for any count."""
    ARITHMETIC = "arithmetic"
    """Entries per ledger, each being one message: a few requests for any count."""
    ANALYSIS = "analysis"
    """The broker reads the entries and returns the number of messages in them."""
    HEADERS = "headers"
    """The headers of every entry up to the boundary."""
    READER = "reader"
    """A reader reads the topic up to the boundary."""
    SUBSCRIPTION = "subscription"
    """A consumer receives from the subscription, which is the only way to see acknowledgements inside batches."""


@dataclass(frozen=True, slots=True)
class AskScan:
    """Ask for the next item of a scan that begins at `first`; the answer is a `ScanItem`, None at the topic's end."""

    strategy: Strategy
    first: Position
