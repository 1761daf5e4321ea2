"""Learning what an id stands for by reading the topic again, where entry headers cannot be had.

The broker's admin API cannot show an entry that is one chunk of a *compressed* message: it tries to decompress the
part, fails, and answers with an error or not at all. A reader that starts early enough assembles the message, and the
C++ id of what it reads knows every chunk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pulsar_ext._native.messages import InnerMessageId
from pulsar_ext._native.results import Timeout
from pulsar_ext.errors import MessageIdUnresolved
from pulsar_ext.ids.message_id import ChunkMessageId, MessageId, from_inner
from pulsar_ext.ids.position import Position

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["find_again", "read_again", "step_back"]

_STEPS = (8, 64, 512, 4096)
"""How many entries before the last chunk to start: a message of more chunks than that is not found."""
_QUIET_MILLIS = 2_000
_READ_MILLIS = 30_000


def find_again(
    open_reader: Callable[[str, Any], Any], topic: str, position: Position, ledgers: Sequence[tuple[int, int]]
) -> MessageId:
    """Find the message whose last entry is at `position`, plain or chunked.

    Args:
        open_reader: opens an official reader on a topic, inclusive of the message that a C++ id names.
        topic: the topic, or the partition.
        position: the message's only or last entry.
        ledgers: the topic's ledgers, `(ledger_id, entries)`.

    Returns:
        The live id, which knows every chunk.

    Raises:
        MessageIdUnresolved: no message ends there, or it began more than 4096 entries earlier.
    """
    for step in _STEPS:
        start = step_back(position, step, ledgers)
        found = _read_up_to(open_reader, topic, _inner(start), position, _QUIET_MILLIS)
        if found is not None:
            return found
        if start == step_back(start, 1, ledgers):
            break
    raise MessageIdUnresolved(
        f"The broker cannot show the entry {position} of {topic} (one chunk of a compressed message?), and reading the "
        f"topic again found no message that ends there within {_STEPS[-1]} entries. Nothing was changed.",
        position=position,
    )


def read_again(open_reader: Callable[[str, Any], Any], topic: str, message_id: ChunkMessageId) -> MessageId:
    """Read a chunked message again for what its stored id lacks: where its middle chunks are.

    Returns:
        The live id, which knows every chunk.

    Raises:
        MessageIdUnresolved: the message cannot be read.
    """
    position = Position(message_id.ledger_id(), message_id.entry_id())
    found = _read_up_to(open_reader, topic, message_id.inner, position, _READ_MILLIS)
    if found is None or found.to_text() != message_id.to_text():
        raise MessageIdUnresolved(
            f"{message_id!r} does not name its middle chunks; no admin API answers, and the message cannot be read "
            f"again from {topic}. Nothing was acknowledged. Give Client(admin=…) or PULSAR_ADMIN_URL.",
            position=position,
        )
    return found


def step_back(position: Position, count: int, ledgers: Sequence[tuple[int, int]]) -> Position:
    """Give the position `count` entries earlier, or the first one there is."""
    ledger_id, entry_id = position.ledger_id, position.entry_id - count
    for before, entries in sorted(ledgers, reverse=True):
        if entry_id >= 0:
            break
        if before < ledger_id and entries:
            ledger_id, entry_id = before, entries + entry_id
    return Position(ledger_id, max(entry_id, 0))


def _read_up_to(
    open_reader: Callable[[str, Any], Any], topic: str, start: Any, position: Position, quiet_millis: int
) -> MessageId | None:
    reader = open_reader(topic, start)
    try:
        return _read_on(reader, position, quiet_millis)
    except Timeout:
        return None
    finally:
        reader.close()


def _read_on(reader: Any, position: Position, quiet_millis: int) -> MessageId | None:
    """Read up to a position. Apart from the reader's end: see `_native/locks.py`."""
    while True:
        live = from_inner(reader.read_next(quiet_millis).message_id())
        at = Position(live.ledger_id(), live.entry_id())
        if at >= position:
            return live if at == position else None


def _inner(position: Position) -> Any:
    return InnerMessageId(-1, position.ledger_id, position.entry_id, -1)
