"""Shipping of this library to executors: packed with its dependencies; classes raise for workers without it.

Spark sends the code of a program to its executors, but not the modules it imports. The distributions installed here are
packed unchanged, so that driver and executors have the same versions, and nothing is downloaded. Spark is excluded,
because each executor has it.

Without the library a worker fails while it loads objects from Spark, before any code of the library can run. So a class
carries the few lines that import it there: they name that Python, and the remedy. If Spark's own requirements are
missing, those lines do not run; so the driver of a cluster warns when it ships a class and the executors' Python is not
configured.
"""

from __future__ import annotations

import copyreg
import io
import os
import re
import sys
import tarfile
import warnings
import zipfile
from abc import ABCMeta
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Final

from pulsar_ext.errors import InvalidUse

ROOTS: Final = ("pulsar-client", "httpcore2", "httpx2", "tenacity", "mmh3", "pyarrow", "pandas", "numpy", "fastavro")
"""Distributions that the library needs in executors, besides Spark's own."""

_ENVIRONMENT: Final = ".tar.gz"
_LIBRARY: Final = ".zip"
_PACKAGE: Final = "pulsar_ext"
_COMPRESSION: Final = 1
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def pack(path: str | os.PathLike[str]) -> list[str]:
    """Pack the installed distributions for executors; return them as `name version`.

    A `.tar.gz` is a virtual environment, for `--archives`; the executors need an identical Python at this machine's
    path. A `.zip` is the library alone, for `--py-files`, if the executors' Python has its dependencies.
    """
    target = Path(path)
    if target.name.endswith(_LIBRARY):
        with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
            for file, name in _library_files():
                archive.write(file, name)
        return [_own_name()]
    if not target.name.endswith(_ENVIRONMENT):
        raise InvalidUse(
            f"{target}: use the suffix {_ENVIRONMENT} for a whole environment, or {_LIBRARY} for the library alone."
        )
    distributions = _distributions()
    # Spark rejects an archive with an entry for the directory itself, and one with links but without compression.
    with tarfile.open(target, "w:gz", compresslevel=_COMPRESSION) as archive:
        _add_python(archive)
        packages = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
        for one in distributions:
            for file, name in _distribution_files(one):
                archive.add(file, f"{packages}/{name}", recursive=False)
        for file, name in _library_files():
            archive.add(file, f"{packages}/{name}", recursive=False)
    return [_own_name(), *sorted(f"{one.name} {one.version}" for one in distributions)]


def _own_name() -> str:
    return f"{_PACKAGE} {sys.modules[_PACKAGE].__version__}"


def _add_python(archive: tarfile.TarFile) -> None:
    """Add the files that make a directory a virtual environment of this machine's Python."""
    python = Path(sys.executable).resolve()
    for name, link in (("bin/python3", str(python)), ("bin/python", "python3")):
        entry = tarfile.TarInfo(name)
        entry.type, entry.linkname = tarfile.SYMTYPE, link
        archive.addfile(entry)
    text = f"home = {python.parent}\ninclude-system-site-packages = false\n".encode()
    entry = tarfile.TarInfo("pyvenv.cfg")
    entry.size = len(text)
    archive.addfile(entry, io.BytesIO(text))


def _distributions() -> list[metadata.Distribution]:
    found: dict[str, metadata.Distribution] = {}
    wanted = list(ROOTS)
    while wanted:
        name = wanted.pop()
        key = re.sub(r"[-_.]+", "-", name).lower()
        if key in found:
            continue
        try:
            found[key] = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            if name in ROOTS:
                raise InvalidUse(f"{name} is not installed here: pip install 'pulsar-ext[spark]'.") from None
            continue  # of another Python, or another system
        # The remaining conditions are about systems and versions: any installed dependency may be needed.
        wanted += [_NAME.match(one)[0] for one in found[key].requires or () if "extra ==" not in one]  # type: ignore[index]
    return list(found.values())


def _distribution_files(distribution: metadata.Distribution) -> Iterator[tuple[str, str]]:
    for file in distribution.files or ():
        is_inside = ".." not in file.parts and "__pycache__" not in file.parts
        if is_inside and Path(found := file.locate()).is_file():
            yield str(found), str(file)


def _library_files() -> Iterator[tuple[str, str]]:
    home = Path(__file__).parents[1]
    for file in sorted(home.rglob("*")):
        if file.is_file() and "__pycache__" not in file.parts:
            yield str(file), f"{_PACKAGE}/{file.relative_to(home)}"


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
    from pyspark.sql import SparkSession  # noqa: PLC0415  # packing needs no Spark

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
