"""Classes that Spark ships to its workers by name, and what a worker says that does not have this library.

Without it a worker fails while it loads what Spark has sent, before any line of this library can run. So a class takes
the few lines along that import it there: they say which Python that is, and what to do.
"""

from __future__ import annotations

import copyreg
from abc import ABCMeta
from typing import Any

__all__ = ["Shipped"]

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
    space = {"module": shipped.__module__, "name": shipped.__qualname__}
    return eval, ("exec(code, space) or space['found']", {"code": _IMPORT, "space": space})


copyreg.pickle(Shipped, _reduce)
