"""Pulsar on Apache Spark, through PySpark's Python data source API.

    from pulsar_ext.spark import PulsarDataSource

    spark.dataSource.register(PulsarDataSource)
    spark.read.format("pulsar").option("service.url", "pulsar://localhost:6650").option("topic", "orders").load()

It needs `pip install 'pulsar-ext[spark]'` on every machine that runs tasks. The pure parts (options, offsets, splits)
need neither Spark nor Arrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .session import spark_session
    from .source import PulsarDataSource

__all__ = ["PulsarDataSource", "spark_session"]


def __getattr__(name: str) -> Any:
    if name == "PulsarDataSource":
        from .source import PulsarDataSource  # noqa: PLC0415  # needs Spark

        return PulsarDataSource
    if name == "spark_session":
        from .session import spark_session  # noqa: PLC0415  # likewise

        return spark_session
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
