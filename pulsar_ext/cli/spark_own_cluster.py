"""A standalone cluster of Spark for one command, to which the library is sent as to any cluster."""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from pulsar_ext.spark.packing import pack

if TYPE_CHECKING:
    from collections.abc import Iterator

_ARCHIVE = "environment.tar.gz"
_PLACE = "environment"
_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "4",
    "spark.ui.enabled": "false",
}


@contextlib.contextmanager
def own_cluster(directory: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Start a master and two workers, and give the master's URL and the settings of a session.

    Within it, this process is in the directory, where the environment is unpacked, and `PYSPARK_PYTHON` is set.
    """
    from pulsar_ext.testing import SparkCluster  # noqa: PLC0415  # an extra

    archive = Path(directory, _ARCHIVE)
    pack(archive)
    place = Path(directory, _PLACE)
    place.mkdir()
    subprocess.run(["tar", "-xzf", archive, "-C", place], check=True)
    os.environ |= {"PYSPARK_PYTHON": f"./{_PLACE}/bin/python", "SPARK_LOCAL_IP": "127.0.0.1"}
    with contextlib.chdir(directory), SparkCluster() as cluster:
        yield cluster.master_url, {**_SETTINGS, "spark.archives": f"{archive}#{_PLACE}"}
