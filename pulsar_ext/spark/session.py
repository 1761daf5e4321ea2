"""A Spark session with the data source registered: local by default, on a cluster with `master`."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from .source import PulsarDataSource

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["SPARK_ERRORS", "spark_session"]

SPARK_ERRORS = (PySparkException, Py4JJavaError)
"""What a job raises: the error as Spark has it in Python, or Java's where Spark has none for it."""

_DEFAULTS = {
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
    # By default Spark divides files by the number of cores that there are at the moment: a batch that is repeated after
    # an executor was lost would have other lanes, and so other sequence ids.
    "spark.sql.files.minPartitionNum": "64",
    # Jobs count their rows by the progress reports of a query.
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
            time zone UTC, files that are divided in the same way whatever cores there are, and locally no UI, 1 GiB of
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
