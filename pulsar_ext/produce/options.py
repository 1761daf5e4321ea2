"""The official arguments of a send, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["columns_of", "key_of", "named_options", "rows_of", "stands_alone"]

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
        ValueError: the iterables are not equally long.
    """
    for content, *row in zip(contents, *columns.values(), strict=True):
        yield content, dict(zip(columns, row, strict=True))
