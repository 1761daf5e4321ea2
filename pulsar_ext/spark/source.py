"""`PulsarDataSource`, which Spark creates for `format("pulsar")`, and the batch read.

Constructors only check their arguments, because Spark pickles these objects and creates them in other processes.

`spark_session` creates a session with the data source registered: local by default, on a cluster with `master`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, MutableMapping

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import datasource as ds
from pyspark.sql.types import StructType

from pulsar_ext.key_shared.hash_ranges import KeyHashRange, KeyHashRanges
from pulsar_ext.key_shared.hashing import SLOTS

from .options import READ, SINK, STREAM, WRITE, Settings, check_options, parse_options, with_environment
from .planning import batch_segments
from .schema import check_schema, full_schema, with_schemas
from .segment_reader import SplitReader
from .shipping import Shipped
from .sink import PulsarStreamWriter, PulsarWriter
from .stream import PulsarStreamReader


class PulsarDataSource(ds.DataSource, metaclass=Shipped):
    """Data source for Pulsar topics, batch and streaming; register it with `spark.dataSource.register`."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(with_environment(options, os.environ))
        check_options(self.options)

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "pulsar"

    def schema(self) -> StructType:
        """Return the columns of a read without a user's schema."""
        return full_schema(self._read_settings(self._reading()))

    def reader(self, schema: StructType) -> ds.DataSourceReader:
        """Create a batch read."""
        settings = self._read_settings(READ)
        check_schema(schema, settings)
        kind = FilteringBatchReader if settings["filterPushdown"] else PulsarBatchReader
        return kind(settings, schema)

    def streamReader(self, schema: StructType) -> PulsarStreamReader:  # noqa: N802  # Spark's name
        """Create a streaming read."""
        settings = self._read_settings(STREAM)
        check_schema(schema, settings)
        return PulsarStreamReader(settings, schema)

    def writer(self, schema: StructType, overwrite: bool) -> PulsarWriter:
        """Create a batch write."""
        return PulsarWriter(parse_options(self.options, WRITE), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> PulsarStreamWriter:  # noqa: N802  # Spark's name
        """Create a streaming write."""
        return PulsarStreamWriter(parse_options(self.options, SINK), schema, overwrite=overwrite)

    def _read_settings(self, where: str) -> Settings:
        return with_schemas(parse_options(self.options, where))

    def _reading(self) -> str:
        """Return the kind of read that the options fit: Spark requests the schema of both in the same way."""
        try:
            parse_options(self.options, READ)
        except ValueError:
            parse_options(self.options, STREAM)
            return STREAM
        return READ


class PulsarBatchReader(SplitReader, ds.DataSourceReader):
    """Batch read: everything between two offsets that are looked up once, when the query is planned."""

    def partitions(self) -> list[ds.InputPartition]:
        """Plan the tasks."""
        segments = batch_segments(self._settings)
        return [] if self._ranges is not None and self._ranges.is_empty else self._plan(segments)


class FilteringBatchReader(PulsarBatchReader):
    """Batch read that applies filters on `__keySlot` itself; needs Spark's filter push-down."""

    def pushFilters(self, filters: list[ds.Filter]) -> Iterable[ds.Filter]:  # noqa: N802  # Spark's name
        """Apply the filters on the slot, and yield those that Spark has to apply."""
        given = self._ranges
        for one in filters:
            slots = _slots_of(one)
            if slots is None:
                yield one
            else:
                self._ranges = slots if self._ranges is None else self._ranges & slots
        if self._settings["splitBy"] == "keyHash" and self._ranges not in (None, given):
            # A filter may leave fewer slots than tasks; options that conflict still raise.
            self._tasks = min(self._settings["minPartitions"], self._ranges.slots)


_BOUNDS: dict[type[ds.Filter], Callable[[int], tuple[int, int]]] = {
    ds.EqualTo: lambda slot: (slot, slot),
    ds.EqualNullSafe: lambda slot: (slot, slot),
    ds.In: lambda slot: (slot, slot),
    ds.GreaterThan: lambda slot: (slot + 1, SLOTS - 1),
    ds.GreaterThanOrEqual: lambda slot: (slot, SLOTS - 1),
    ds.LessThan: lambda slot: (0, slot - 1),
    ds.LessThanOrEqual: lambda slot: (0, slot),
}
"""First and last slot that a filter keeps, by each of its values."""


def _slots_of(one: ds.Filter) -> KeyHashRanges | None:
    """Return the slots that a filter keeps; None if it cannot be applied to slots."""
    if getattr(one, "attribute", None) != ("__keySlot",):
        return None
    if isinstance(one, ds.IsNotNull):  # each message has a slot
        return KeyHashRanges.full()
    bounds, values = _BOUNDS.get(type(one)), one.value if isinstance(one, ds.In) else (getattr(one, "value", None),)
    if bounds is None or not all(isinstance(value, int) for value in values):
        return None
    spans = ((max(low, 0), min(high, SLOTS - 1)) for low, high in map(bounds, sorted(set(values))))
    kept = [KeyHashRange(low, high) for low, high in spans if low <= high]
    return KeyHashRanges(kept) if kept else KeyHashRanges.empty()


SPARK_ERRORS = (PySparkException, Py4JJavaError)
"""Errors that a job raises: Spark's error in Python, or Java's if Spark has no Python class for it."""

_DEFAULTS = {
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
    # By default Spark divides files by the current number of cores: a batch that is repeated after an executor was lost
    # would have other partitions, and so other sequence ids.
    "spark.sql.files.minPartitionNum": "64",
    # Jobs count their rows by a query's progress reports.
    "spark.sql.streaming.numRecentProgressUpdates": "100000",
}
_LOCAL = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "4",
}


def spark_session(
    app_name: str = "pulsar_ext", *, master: str | None = None, config: Mapping[str, str] | None = None
) -> SparkSession:
    """Get or create a session that knows `format("pulsar")`.

    Args:
        app_name: the name that a cluster shows.
        master: the URL of a cluster; by default that of `spark-submit`, else `local[*]`.
        config: more settings of Spark. They override the defaults of this function, which are filter push-down, the
            time zone UTC, a division of files that does not depend on the number of cores, and locally no UI, 1 GiB of
            driver memory and only the loop-back interface.
    """
    builder = SparkSession.builder.appName(app_name)
    chosen = master or (None if "SPARK_ENV_LOADED" in os.environ else "local[*]")
    settings = dict(_DEFAULTS)
    if chosen is not None:
        builder = builder.master(chosen)
        if chosen.startswith("local"):
            settings |= _LOCAL
            # The workers of a local session run this Python.
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    for name, value in (settings | dict(config or {})).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.dataSource.register(PulsarDataSource)
    return session
