"""Classes that Spark ships to its workers by name, with an error for workers that lack this library.

Without the library a worker fails while it loads objects from Spark, before any code of the library can run. So a class
carries the few lines that import it there: they name that Python, and the remedy. If Spark's own requirements are
missing, those lines do not run; so the driver of a cluster warns when it ships a class and the executors' Python is not
configured.
"""

from __future__ import annotations

import copyreg
import os
import sys
import warnings
from abc import ABCMeta
from collections.abc import Callable

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
    """Metaclass of classes whose pickles raise a helpful error if they cannot be loaded."""


def _reduce(shipped: Shipped) -> tuple[Callable[..., Shipped], tuple[object, ...]]:
    _check_python()
    space = {"module": shipped.__module__, "name": shipped.__qualname__}
    return eval, ("exec(code, space) or space['found']", {"code": _IMPORT, "space": space})


def _check_python() -> None:
    """Warn in the driver of a cluster if the executors' Python is not configured."""
    session = SparkSession.getActiveSession()
    if session is None or "PYSPARK_PYTHON" in os.environ or (session.sparkContext.master or "").startswith("local"):
        return
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    warnings.warn(
        "PYSPARK_PYTHON is not set: each executor uses the python3 of its own PATH. That must be Python "
        f"{version} with pulsar_ext and its extra spark; otherwise tasks fail, for instance for lack of pyarrow. "
        "Set PYSPARK_PYTHON, to python3 if that is right. docs/spark.md shows how to ship a Python.",
        stacklevel=2,
    )


copyreg.pickle(Shipped, _reduce)
