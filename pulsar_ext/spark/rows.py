"""Rows to be written: Arrow batches, divided by lane, with a column for each argument of a send."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import compute

from pulsar_ext._wire.batch_payload import Base64Key
from pulsar_ext.errors import InvalidUse
from pulsar_ext.ids.topic_name import TopicName

from .pair_columns import BASE64_KEYS, pair_columns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .options import Settings

__all__ = ["BatchSplitter", "Rows", "arguments_of", "arrow_compute"]

arrow_compute: Any = compute
"""Its functions are defined as it is imported, so that type checkers do not see them."""


@dataclass(frozen=True)
class Rows:
    """Rows of one lane, in order, in columns that have the names of a send's arguments; `content` is always there."""

    topics: list[str] | str
    columns: pa.RecordBatch

    def __len__(self) -> int:
        return int(self.columns.num_rows)


def arguments_of(columns: pa.RecordBatch) -> dict[str, list[Any]]:
    """Give rows as Python's values: a list for each argument of a send."""
    found = {name: columns.column(name).to_pylist() for name in columns.schema.names}
    if "properties" in found:
        found["properties"] = [dict(pairs) if pairs else None for pairs in found["properties"]]
    if found.pop(BASE64_KEYS, None):
        found["partition_key"] = list(map(Base64Key, found["partition_key"]))
    return found


class BatchSplitter:
    """Divides Arrow batches into the rows of each lane.

    Args:
        settings: the options.
    """

    def __init__(self, settings: Settings) -> None:
        self._topic, self._encoding = settings["topic"], settings["keyValueEncoding"]
        self._lane = settings["laneBy"]

    def by_lane(self, batch: Any, task: str) -> Iterator[tuple[str, Rows]]:
        """Give the rows of a batch, by lane.

        Args:
            batch: an Arrow record batch.
            task: the lane of all rows, unless option `laneBy` names a column.

        Raises:
            InvalidUse: a topic or a lane is null, a topic's name is invalid, or a key is not text, or with option
                `keyValueEncoding` SEPARATED null.
        """
        if not batch.num_rows:
            return
        if self._lane is None:
            yield task, self._rows(batch)
            return
        lanes = batch.column(self._lane).cast(pa.string())
        if lanes.null_count:
            raise InvalidUse(f"Column {self._lane} is null in {lanes.null_count} rows: each row needs a lane.")
        for lane in lanes.unique().to_pylist():
            yield lane, self._rows(batch.filter(arrow_compute.equal(lanes, lane)))

    def _rows(self, batch: Any) -> Rows:
        given = {"content": batch.column("value").cast(pa.binary())}
        if self._encoding is None:
            given["partition_key"] = _texts(batch, "__key")
        else:
            given |= pair_columns(batch, self._encoding)
        given |= {
            "ordering_key": _texts(batch, "__orderingKey"),
            "properties": _properties(batch),
            "event_timestamp": _times(batch),
        }
        columns = {name: column for name, column in given.items() if column is not None}
        return Rows(self._topics(batch), pa.RecordBatch.from_pydict(columns))

    def _topics(self, batch: Any) -> list[str] | str:
        if self._topic is not None:
            return str(self._topic)
        topics = batch.column("__topic")
        if topics.null_count:
            raise InvalidUse(f"Column __topic is null in {topics.null_count} rows, and option topic is not given.")
        # In full, so that a topic that rows name in several ways is one.
        names = {name: str(TopicName.parse(name)) for name in topics.unique().to_pylist()}
        if len(unique := set(names.values())) == 1:
            return unique.pop()
        return [names[name] for name in topics.to_pylist()]


def _column(batch: Any, name: str) -> Any:
    """Give a column; None if the batch lacks it or it has only nulls."""
    if name not in batch.schema.names:
        return None
    column = batch.column(name)
    return None if column.null_count == len(column) else column


def _texts(batch: Any, name: str) -> Any:
    column = _column(batch, name)
    if column is None:
        return None
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid as error:
        raise InvalidUse(
            f"Column {name} has bytes that are not UTF-8 text, which the client cannot send: {error}"
        ) from None


def _properties(batch: Any) -> Any:
    column = _column(batch, "__messageProperties")
    if column is None or not len(column.keys):
        return None
    if column.items.null_count:
        raise InvalidUse("A property's value is null: leave that property out.")
    return column


def _times(batch: Any) -> Any:
    column = _column(batch, "__eventTime")
    if column is None:
        return None
    # Pulsar keeps milliseconds.
    whole = arrow_compute.floor_temporal(column, unit="millisecond")
    millis = whole.cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64())
    early = arrow_compute.sum(arrow_compute.less(millis, 0)).as_py()
    if early:
        raise InvalidUse(
            f"Column __eventTime is before 1970 in {early} rows, which a message cannot have. Make it null there."
        )
    return millis
