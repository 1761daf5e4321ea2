"""Send options by name, sequence ids without deduplication, and the send timeout of a producer.

The C++ client restarts the send timeout at each reconnection. If a broker rejects a message, which closes the
connection each time, no message of the producer would ever time out. A producer with `lazy_start_partitioned_producers`
is an exception: its timeout is not restarted. The C++ producer reads its configuration at each reconnection, and copies
of a configuration share their fields, so `SendTiming` can set this option after the producer was opened.

On a partitioned topic the option has a second effect: partitions added later are started by their first message, and a
flush at that time returns too early. So for a topic that may have partitions, the option is set only while the
producer's connection is unsteady.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from itertools import islice
from typing import Any, Final, TypeVar

from pulsar_ext._native.core import SequenceBase
from pulsar_ext._native.messages import InnerProducerConfiguration
from pulsar_ext._native.signatures import Arguments
from pulsar_ext.errors import InvalidUse

T = TypeVar("T")
Options = Arguments
"""The official arguments of a send after content and callback, by name."""
Columns = dict[str, Iterable[Any]]
"""The options of the messages of a `send_many`."""
_OPTIONS = (
    *("properties", "partition_key", "ordering_key", "sequence_id", "replication_clusters"),
    *("disable_replication", "event_timestamp", "deliver_at", "deliver_after"),
)
"""In the order of the official arguments."""


def named_options(args: tuple[object, ...], kwargs: dict[str, object]) -> Options:
    """Return the official arguments of a send by name."""
    if not args:
        return kwargs
    if len(args) > len(_OPTIONS):
        raise TypeError(f"send takes at most {len(_OPTIONS)} arguments after its content, got {len(args)}")
    named: Options = dict(zip(_OPTIONS, args, strict=False))
    if duplicates := named.keys() & kwargs.keys():
        raise TypeError(f"send got several values for {', '.join(sorted(duplicates))}")
    return named | kwargs


def is_single_entry(options: Options) -> bool:
    """Return whether a message must be a single entry: it is delayed, or has its own replication options."""
    return bool(
        options.get("deliver_at")
        or options.get("deliver_after")
        or options.get("replication_clusters")
        or options.get("disable_replication")
    )


def key_of(options: Options) -> str:
    """Return the key that key-based batching uses."""
    ordering: str | None = options.get("ordering_key")
    return ordering if ordering is not None else options.get("partition_key") or ""


def columns_of(*columns: Iterable[object] | None) -> Columns:
    """Return the columns passed to `send_many`, by option name; the arguments are in the order of its parameters."""
    names = ("partition_key", "ordering_key", "sequence_id", "properties", "event_timestamp")
    return {name: column for name, column in zip(names, columns, strict=True) if column is not None}


def rows_of(contents: Iterable[T], columns: Columns) -> Iterator[tuple[T, Options]]:
    """Yield each content of a `send_many` with its options."""
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
    contents: Iterable[T], sequence_ids: Iterable[int | None] | None, most: int
) -> Iterator[tuple[list[T], list[int | None] | None]]:
    """Yield the contents of a `send_many` in parts of up to `most`, each with its sequence ids if any.

    The items before an error are yielded before the error is raised.
    """
    source, ids, count = iter(contents), None if sequence_ids is None else iter(sequence_ids), 0
    while True:
        part: list[T] = []
        ids_part: list[int | None] | None = None
        error = _take(source, most, part)
        if ids is not None:
            ids_part = []
            error = _take(ids, len(part), ids_part) or error
            if error is None and len(ids_part) < len(part):
                error = ValueError(f"There are fewer sequence_ids than contents: {count + len(ids_part)}.")
            del part[len(ids_part) :]
        count += len(part)
        if part:
            yield part, ids_part
        if error is not None:
            raise error
        if len(part) < most:
            break
    if ids is not None and next(ids, None) is not None:
        raise ValueError(f"There are more sequence_ids than contents: {count}.")


def _take(source: Iterator[T], most: int, into: list[T]) -> Exception | None:
    """Append up to `most` items to a list; return the error that the source raised, or None."""
    try:
        into.extend(islice(source, most))
    except Exception as error:  # noqa: BLE001  # raised after the items before it are sent
        return error
    return None


class SequenceCounter(SequenceBase):
    """Sequence ids of a producer without deduplication; automatic ids continue after the highest explicit one."""

    def __init__(self, last: int) -> None:
        self.last = last
        """The highest id of a message, pushed or in an open batch."""
        self.steady = True
        """Whether ids are automatic and the next one is `last + 1`, so that the sender may assign it inline."""

    @property
    def upcoming(self) -> int:
        """The next automatic id."""
        return self.last + 1

    def admit_many(self, count: int) -> range:
        """Return `count` automatic ids."""
        first = self.upcoming
        self.last = first + count - 1
        return range(first, first + count)


_MOST_SECONDS, _LEAST_SECONDS = 2.0, 0.05


def keep_timeout_running(configuration: InnerProducerConfiguration) -> None:
    """Let the send timeout of a producer continue across reconnections from now on."""
    configuration.lazy_start_partitioned_producers(True)  # noqa: FBT003  # positional in the binding


class SendTiming:
    """Lets the send timeout continue while the connection of a producer is unsteady."""

    def __init__(self, configuration: InnerProducerConfiguration, timeout_millis: int) -> None:
        self._configuration = configuration
        self._timeout = timeout_millis / 1000  # more than 0
        self._unsteady_until = 0.0
        self.seconds: Final = max(_LEAST_SECONDS, min(_MOST_SECONDS, self._timeout / 8))
        """The polling interval."""

    def poll(self, now: float, *, connected: bool) -> None:
        """Record whether the producer is connected at `now`, a monotonic time in seconds."""
        if not connected:
            if not self._unsteady_until:
                keep_timeout_running(self._configuration)
            self._unsteady_until = now + 2 * self._timeout
        elif self._unsteady_until and now > self._unsteady_until:
            self.reset()

    def reset(self) -> None:
        """Restore the official timing; no message is in flight, so polling stops."""
        if self._unsteady_until:
            self._unsteady_until = 0.0
            self._configuration.lazy_start_partitioned_producers(False)  # noqa: FBT003  # positional in the binding
