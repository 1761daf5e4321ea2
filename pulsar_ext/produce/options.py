"""The official arguments of a send, by name."""

from __future__ import annotations

from collections.abc import Sized
from itertools import islice
from typing import TYPE_CHECKING, Any

from pulsar_ext.errors import InvalidUse

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["columns_of", "key_of", "named_options", "parts_of", "rows_of", "stands_alone"]

_OPTIONS = (
    "properties",
    "partition_key",
    "ordering_key",
    "sequence_id",
    "replication_clusters",
    "disable_replication",
    "event_timestamp",
    "deliver_at",
    "deliver_after",
)
"""The official arguments of a send behind its content and its callback, in their order."""


def named_options(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Give the official arguments of a send by their names."""
    if not args:
        return kwargs
    if len(args) > len(_OPTIONS):
        raise TypeError(f"send takes at most {len(_OPTIONS)} arguments behind its content, not {len(args)}")
    named = dict(zip(_OPTIONS, args, strict=False))
    if twice := named.keys() & kwargs.keys():
        raise TypeError(f"send got several values for {', '.join(sorted(twice))}")
    return named | kwargs


def stands_alone(options: dict[str, Any]) -> bool:
    """Whether a message goes as an entry of its own: a delayed one, and one whose replication is its own."""
    return bool(
        options.get("deliver_at")
        or options.get("deliver_after")
        or options.get("replication_clusters")
        or options.get("disable_replication")
    )


def key_of(options: dict[str, Any]) -> str:
    """Give what batches by key go by."""
    ordering: str | None = options.get("ordering_key")
    return ordering if ordering is not None else options.get("partition_key") or ""


def columns_of(*columns: Iterable[Any] | None) -> dict[str, Iterable[Any]]:
    """Name the columns that `send_many` was given, in the order of its parameters."""
    names = ("partition_key", "ordering_key", "sequence_id", "properties", "event_timestamp")
    return {name: column for name, column in zip(names, columns, strict=True) if column is not None}


def rows_of(contents: Iterable[Any], columns: dict[str, Iterable[Any]]) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Give each content of a `send_many` with its options.

    Raises:
        InvalidUse: a column has a length, and another one than the contents. Nothing was sent.
        ValueError: the iterables turn out not to be equally long.
    """
    if isinstance(contents, Sized):
        for name, column in columns.items():
            if isinstance(column, Sized) and len(column) != len(contents):
                raise InvalidUse(
                    f"send_many() needs one {name} for each of the {len(contents)} messages, got {len(column)}. "
                    "Nothing was sent."
                )
    for content, *row in zip(contents, *columns.values(), strict=True):
        yield content, dict(zip(columns, row, strict=True))


def parts_of(
    contents: Iterable[Any], sequence_ids: Iterable[Any] | None, most: int
) -> Iterator[tuple[list[Any], list[Any] | None]]:
    """Give the contents of a `send_many`, so many at once, with their sequence ids if they have any.

    What comes before an error is given before it is raised.

    Raises:
        ValueError: the iterables are not equally long.
    """
    source, ids, taken = iter(contents), None if sequence_ids is None else iter(sequence_ids), 0
    while True:
        part: list[Any] = []
        numbers: list[Any] | None = None
        error = _take(source, most, part)
        if ids is not None:
            numbers = []
            error = _take(ids, len(part), numbers) or error
            if error is None and len(numbers) < len(part):
                error = ValueError(f"There are fewer sequence_ids than contents: {taken + len(numbers)}.")
            del part[len(numbers) :]
        taken += len(part)
        if part:
            yield part, numbers
        if error is not None:
            raise error
        if len(part) < most:
            break
    if ids is not None and next(ids, None) is not None:
        raise ValueError(f"There are more sequence_ids than contents: {taken}.")


def _take(source: Iterator[Any], most: int, into: list[Any]) -> Exception | None:
    """Append so many items to a list; give what the source raised behind those that it gave."""
    try:
        into.extend(islice(source, most))
    except Exception as error:  # noqa: BLE001  # it is raised behind what came before
        return error
    return None
