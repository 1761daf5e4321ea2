"""Session whose workers run another Python than the driver; needs no broker."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("pyspark")

_HIDE = """\
import sys

class Hides:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "pulsar_ext":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hides())
"""

_DRIVER = """\
from pulsar_ext.spark import spark_session

spark = spark_session("tests", master="local[1]", config={"spark.log.level": "OFF"})
try:
    spark.read.format("pulsar").options(**{"service.url": "pulsar://localhost:1", "topic": "t"}).load()
except Exception as error:
    print("raised:", error)
finally:
    spark.stop()
"""


def test_workers_without_the_library(tmp_path):
    """An error names the Python of PYSPARK_PYTHON that lacks the library, and the remedy."""
    (tmp_path / "sitecustomize.py").write_text(_HIDE)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{tmp_path}:$PYTHONPATH" exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    environment = {**os.environ, "PYSPARK_PYTHON": str(python), "SPARK_LOCAL_IP": "127.0.0.1"}
    driver = [sys.executable, "-c", _DRIVER]
    done = subprocess.run(driver, env=environment, capture_output=True, text=True, check=True)
    raised = done.stdout.partition("raised:")[2]
    assert "The Python of this Spark worker" in raised, done.stdout + done.stderr
    assert "set PYSPARK_PYTHON" in raised
