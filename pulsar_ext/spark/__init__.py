"""Pulsar on Apache Spark, through PySpark's Python data source API.

    from pulsar_ext.spark import PulsarDataSource

    spark.dataSource.register(PulsarDataSource)
    spark.read.format("pulsar").option("service.url", "pulsar://localhost:6650").option("topic", "orders").load()

Install `pulsar-ext[spark]` on every machine that runs tasks. The pure modules (options, offsets) need neither
Spark nor Arrow.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from pulsar_ext.errors import MissingExtra

if TYPE_CHECKING:
    from .source import PulsarDataSource, spark_session

__all__ = ["PulsarDataSource", "spark_session"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with MissingExtra.named("spark", f"pulsar_ext.spark.{name}"):
        return getattr(import_module(".source", __name__), name)
