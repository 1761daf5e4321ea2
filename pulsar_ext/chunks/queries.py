"""How a pure search asks about a topic: it yields queries and is sent the answers, so that it runs without a broker."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from pulsar_ext.errors import AdminNotFound

if TYPE_CHECKING:
    from pulsar_ext.admin import EntryMetadata, PulsarAdmin
    from pulsar_ext.ids.position import Position

__all__ = ["AskEntry", "AskLedgers", "Search", "entry_headers", "run_search"]

T = TypeVar("T")

Search = Generator[Any, Any, T]
"""A search that yields queries, each of which says in its docstring what has to be sent, and returns what it found."""


@dataclass(frozen=True, slots=True)
class AskEntry:
    """The search needs the headers of one entry; send an `EntryMetadata`, or None if there is no such entry."""

    position: Position


@dataclass(frozen=True, slots=True)
class AskLedgers:
    """The search needs the size of every ledger of the topic; send pairs `(ledger_id, entries)`."""


def run_search(search: Search[T], answer: Callable[[Any], object]) -> T:
    """Run a search to its end.

    Args:
        search: which.
        answer: gives what a query asks for; what it raises ends the search.
    """
    reply: object = None
    while True:
        try:
            query = search.send(reply)
        except StopIteration as end:
            found: T = end.value
            return found
        reply = answer(query)


def entry_headers(admin: PulsarAdmin, topic: str, position: Position) -> EntryMetadata | None:
    """Answer an `AskEntry` over the admin REST API.

    Raises:
        AdminError: the admin API refused or did not answer.
    """
    try:
        return admin.entry(topic, position.ledger_id, position.entry_id)
    except AdminNotFound:
        return None
