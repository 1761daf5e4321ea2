"""The official arguments of a send, by name; sequence ids without deduplication; and the send timeout of a producer.

The C++ client restarts the send timeout at each reconnection. If a broker rejects a message, which ends the connection
each time, no message of the producer would ever time out. A producer that starts its partitions lazily is an exception:
its timeout runs from the beginning. The C++ producer reads its configuration at each reconnection, and the copies that
the C++ client makes of a configuration share their fields, so `SendTiming` can set this after the producer was opened.

On a partitioned topic lazy starting has a second meaning: partitions that are added later are started with their first
message, and a flush that meets this returns too early. So if a topic may have partitions, it is set only while the
producer's connection is unsteady.
"""

from __future__ import annotations

from collections.abc import Sized
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Protocol

from pulsar_ext._native.core import SequenceBase
from pulsar_ext.errors import InvalidUse

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


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


class SequenceNumbers(Protocol):
    """The sequence ids of one producer on one topic."""

    last: int
    """The highest id that a message has."""
    steady: bool
    """Whether the next id is `last + 1`, so that the sender may take it by itself."""

    @property
    def upcoming(self) -> int:
        """The next automatic id."""
        ...


class SequenceCounter(SequenceBase):
    """The sequence ids of a producer without deduplication; an explicit one moves the automatic ones behind it."""

    __slots__ = ()

    def __init__(self, last: int) -> None:
        self.last = last
        self.steady = True

    @property
    def upcoming(self) -> int:
        """The next automatic id."""
        return self.last + 1


_MOST_SECONDS, _LEAST_SECONDS = 2.0, 0.05
_SHARE: Final = 8


def run_on(configuration: Any) -> None:
    """Have the send timeout of the producer of a configuration run on at reconnections, from now on."""
    configuration.lazy_start_partitioned_producers(True)  # noqa: FBT003  # the binding takes it so


class SendTiming:
    """Has the send timeout run on while the connection of a producer is unsteady.

    Args:
        configuration: that the C++ producer was opened with.
        timeout_millis: its send timeout; more than 0.
    """

    __slots__ = ("_configuration", "_timeout", "_unsteady_until", "seconds")

    def __init__(self, configuration: Any, timeout_millis: int) -> None:
        self._configuration = configuration
        self._timeout = timeout_millis / 1000
        self._unsteady_until = 0.0
        self.seconds: Final = max(_LEAST_SECONDS, min(_MOST_SECONDS, self._timeout / _SHARE))
        """How often to look."""

    def look(self, now: float, *, connected: bool) -> None:
        """Take note of how the connection is at a monotonic time in seconds."""
        if not connected:
            if not self._unsteady_until:
                run_on(self._configuration)
            self._unsteady_until = now + 2 * self._timeout
        elif self._unsteady_until and now > self._unsteady_until:
            self.rest()

    def rest(self) -> None:
        """Take note that nothing is on its way: it is not looked at for a while."""
        if self._unsteady_until:
            self._unsteady_until = 0.0
            self._configuration.lazy_start_partitioned_producers(False)  # noqa: FBT003  # as above
