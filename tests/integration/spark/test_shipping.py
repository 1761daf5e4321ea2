"""Errors of objects that Spark ships to a Python without the library."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.types import StringType, StructField, StructType

from pulsar_ext.spark import PulsarDataSource
from pulsar_ext.spark.offsets import Split
from pulsar_ext.spark.options import parse_options
from pulsar_ext.spark.schema import full_schema
from pulsar_ext.spark.segment_reader import PulsarPartition

OPTIONS = {"service.url": "pulsar://localhost:1", "topic": "t"}


def shipped():
    """Yield one object of each kind that Spark pickles."""
    source = PulsarDataSource(OPTIONS)
    schema = full_schema(parse_options(OPTIONS, "batch read"))
    columns = StructType([StructField("value", StringType())])
    yield from (
        PulsarDataSource,
        source,
        source.reader(schema),
        source.streamReader(schema),
        PulsarPartition(Split(())),
    )
    yield from (source.writer(columns, overwrite=False), source.streamWriter(columns, overwrite=False))


@pytest.mark.parametrize("dumps", [pickle.dumps, CloudPickleSerializer().dumps], ids=["pickle", "cloudpickle"])
def test_python_without_library_raises_a_hint(dumps):
    """Each class and object raises one sentence in a Python without libraries: the missing module, and the remedy."""
    for one in shipped():
        assert type(pickle.loads(dumps(one))) is type(one)
        load = "import pickle, sys; pickle.loads(sys.stdin.buffer.read())"
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", load], input=dumps(one), capture_output=True, check=False
        )
        last = done.stderr.decode().strip().splitlines()[-1]
        assert last.startswith(f"ModuleNotFoundError: The Python of this Spark worker, {sys.executable}"), last
        assert "has no module pulsar_ext." in last
        assert "PYSPARK_PYTHON" in last
