"""Classes that Spark ships to its workers by name, and what a worker says that does not have this library.

Without it a worker fails while it loads what Spark has sent, before any line of this library can run. So a class takes
the few lines along that import it there: they say which Python that is, and what to do. Where even Spark's own
requirements are missing, those lines are not reached; so the driver of a cluster warns when it ships a class and nobody
has said which Python the executors are to run.
"""

from __future__ import annotations

import copyreg
import os
import sys
import warnings
from abc import ABCMeta
from typing import Any

from pyspark.sql import SparkSession

_IMPORT = """\
import importlib, sys
try:
    found = getattr(importlib.import_module(module), name)
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"The Python of this Spark worker, {sys.executable}, has no module {error.name}. Each worker, on the driver's "
        "machine too, needs pulsar_ext with its extra spark: set PYSPARK_PYTHON, or spark.pyspark.python, to a Python "
        "that has it. docs/spark.md shows how to ship one to a cluster.",
        name=error.name,
    ) from None
"""


class Shipped(ABCMeta):
    """The class of classes whose pickles say what is missing where they cannot be loaded."""


def _reduce(shipped: Shipped) -> tuple[Any, ...]:
    _look_at_python()
    space = {"module": shipped.__module__, "name": shipped.__qualname__}
    return eval, ("exec(code, space) or space['found']", {"code": _IMPORT, "space": space})


def _look_at_python() -> None:
    """Warn in the driver of a cluster if executors have to find a Python by themselves."""
    session = SparkSession.getActiveSession()
    if session is None or "PYSPARK_PYTHON" in os.environ or (session.sparkContext.master or "").startswith("local"):
        return
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    warnings.warn(
        "PYSPARK_PYTHON is not set: each executor takes python3 from its own PATH. That has to be Python "
        f"{version} with pulsar_ext and its extra spark; without, tasks fail with \"No module named 'pyarrow'\" or the "
        "like. Set PYSPARK_PYTHON, to python3 if that is right. docs/spark.md shows how to ship one to a cluster.",
        stacklevel=2,
    )


copyreg.pickle(Shipped, _reduce)
