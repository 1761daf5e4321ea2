"""Operations on message ids, each path written once for both clients."""

from __future__ import annotations

import contextlib
import random
from typing import TYPE_CHECKING, Any

from benchmarks.steps import Run, for_each, received

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.measure import Side

__all__ = ["compare_ids", "create_ids", "deserialize", "message_id", "on_ids", "read_ids", "serialize_ids", "sort_ids"]


@contextlib.contextmanager
def message_id(side: Side, calls: int) -> Iterator[Run]:
    with received(side, calls) as (_, messages):

        def run() -> None:
            for message in messages:
                message.message_id()

        yield run


@contextlib.contextmanager
def _ids(side: Side, calls: int, use: Callable[[Any, list[Any]], object]) -> Iterator[Run]:
    with received(side, calls) as (_, messages):
        ids = [message.message_id() for message in messages]
        yield lambda: use(side.lib, ids)


def create_ids(lib: Any, ids: list[Any]) -> None:
    create = lib.MessageId
    for number, _ in enumerate(ids):
        create(-1, 5, number, 0)


def compare_ids(_: Any, ids: list[Any]) -> None:
    first = ids[0]
    for one in ids:
        one < first  # noqa: B015  # the comparison itself is measured
        one == first  # noqa: B015


def sort_ids(_: Any, ids: list[Any]) -> None:
    random.Random(len(ids)).shuffle(ids)
    ids.sort()


def serialize_ids(_: Any, ids: list[Any]) -> None:
    for one in ids:
        one.serialize()


def read_ids(_: Any, ids: list[Any]) -> None:
    for one in ids:
        one.ledger_id()
        one.entry_id()


@contextlib.contextmanager
def deserialize(side: Side, calls: int) -> Iterator[Run]:
    with received(side, calls) as (_, messages):
        texts = [message.message_id().serialize() for message in messages]
        yield lambda: for_each(side.lib.MessageId.deserialize, texts)


def on_ids(use: Callable[[Any, list[Any]], object]) -> Callable[..., contextlib.AbstractContextManager[Run]]:
    return lambda side, calls: _ids(side, calls, use)
