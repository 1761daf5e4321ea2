"""A row of a map in so many cells: what of a topic each of them stands for (pure)."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Literal, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .topic_map import CursorMap, EntryKind, TopicMap

__all__ = ["State", "cells_of", "cursor_states", "entry_kinds", "joined", "ledger_cells"]

T = TypeVar("T")

State = Literal["acknowledged", "unread", "delivered", "hole"]
"""What of a cursor matters more stands further behind: a cell of many entries shows the last of these that it has."""

_WEIGHT: dict[State, int] = {"acknowledged": 0, "unread": 1, "delivered": 2, "hole": 3}
_KIND_WEIGHT: dict[EntryKind | None, int] = {None: 0, "message": 1, "batch": 2, "chunk": 3}


def cells_of(entries: int, most: int) -> int:
    """Tell in how many cells so many entries are drawn: one each where there is room."""
    return min(entries, most)


def _cell(number: int, entries: int, cells: int) -> int:
    """Tell in which cell an entry is, 0-based."""
    return (number - 1) * cells // entries


def cursor_states(topic: TopicMap, cursor: CursorMap, cells: int) -> list[State]:
    """Give what each cell shows of a cursor; in time linear in its stretches and the cells."""
    states: list[State] = ["acknowledged"] * cells
    for one in cursor.stretches:
        read = min(max(cursor.read_until, one.first - 1), one.last)
        if one.acknowledged_behind:
            _raise_to(states, "hole", _cell(one.first, topic.entries, cells), _cell(one.last, topic.entries, cells))
            continue
        if read >= one.first:
            _raise_to(states, "delivered", _cell(one.first, topic.entries, cells), _cell(read, topic.entries, cells))
        if read < one.last:
            _raise_to(states, "unread", _cell(read + 1, topic.entries, cells), _cell(one.last, topic.entries, cells))
    return states


def _raise_to(states: list[State], state: State, first: int, last: int) -> None:
    for at in range(first, last + 1):
        if _WEIGHT[states[at]] < _WEIGHT[state]:
            states[at] = state


def ledger_cells(topic: TopicMap, cells: int) -> list[str]:
    """Give which ledger each cell begins in."""
    found: list[str] = []
    for one in topic.ledgers:
        last = _cell(one.first + one.entries - 1, topic.entries, cells)
        found += [str(one.ledger_id)] * (last + 1 - len(found))
    return found


def entry_kinds(topic: TopicMap, cells: int) -> list[EntryKind | None]:
    """Give what the entries of each cell are; None where none was looked at."""
    kinds: list[EntryKind | None] = [None] * cells
    for number, kind in topic.kinds.items():
        at = _cell(number, topic.entries, cells)
        if _KIND_WEIGHT[kinds[at]] < _KIND_WEIGHT[kind]:
            kinds[at] = kind
    return kinds


def joined(cells: Sequence[T]) -> list[tuple[int, int, T]]:
    """Join neighbours that are the same: where each begins, how many cells it has, what it is."""
    parts, at = [], 0
    for what, same in groupby(cells):
        count = len(list(same))
        parts.append((at, count, what))
        at += count
    return parts
