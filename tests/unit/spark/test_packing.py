"""What is packed for executors."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from pulsar_ext.errors import InvalidUse
from pulsar_ext.spark import packing

_PROJECT = Path(__file__).parents[3] / "pyproject.toml"


def test_the_roots_are_the_projects():
    """What is packed are the requirements of the project and of its extra for Spark, without Spark."""
    project = tomllib.loads(_PROJECT.read_text())["project"]
    required = [*project["dependencies"], *project["optional-dependencies"]["spark"]]
    names = {re.match(r"[\w-]+", one)[0] for one in required}
    assert set(packing.ROOTS) == names - {"pyspark"}


def test_a_packed_environment_runs(tmp_path, monkeypatch):
    """A packed environment, unpacked elsewhere, imports the library and a dependency of its own, and nothing else."""
    monkeypatch.setattr(packing, "ROOTS", ("pulsar-client", "httpx2", "tenacity", "mmh3"))
    packed = packing.pack(tmp_path / "environment.tar.gz")
    assert packed[0].startswith("pulsar_ext ")
    assert any(one.startswith("httpcore2 ") for one in packed), "a dependency of a dependency is missing"
    home = tmp_path / "elsewhere"
    home.mkdir()
    with tarfile.open(tmp_path / "environment.tar.gz") as archive:
        # Spark refuses an archive with an entry for the directory itself.
        assert not any(name.startswith(".") for name in archive.getnames())
    subprocess.run(["tar", "-xzf", tmp_path / "environment.tar.gz", "-C", home], check=True)
    program = "import pulsar_ext, sys; print(pulsar_ext.__file__, sys.prefix, *sys.path, sep='\\n')"
    done = subprocess.run(
        [home / "bin" / "python", "-c", program], capture_output=True, text=True, check=True, env={}, cwd=tmp_path
    )
    file, prefix, *paths = done.stdout.splitlines()
    assert file.startswith(str(home))
    assert prefix == str(home)
    assert [path for path in paths if path.endswith("site-packages")] == [str(Path(file).parents[1])]


def test_the_library_alone(tmp_path):
    """A zip has the library, which can be imported out of it, and nothing else."""
    target = tmp_path / "library.zip"
    assert len(packing.pack(target)) == 1
    with zipfile.ZipFile(target) as archive:
        assert {name.split("/")[0] for name in archive.namelist()} == {"pulsar_ext"}
    program = "import pulsar_ext.spark.packing; print(pulsar_ext.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(target)},
        cwd=tmp_path,
    )
    assert done.stdout.startswith(str(target)), done.stderr


def test_what_cannot_be_packed(tmp_path, monkeypatch):
    """Another name of the file, or a dependency that is missing, raises, and nothing is written."""
    with pytest.raises(InvalidUse, match=r"\.tar\.gz for a whole environment"):
        packing.pack(tmp_path / "environment.tar")
    monkeypatch.setattr(packing, "ROOTS", ("pulsar-client", "not-a-distribution"))
    with pytest.raises(InvalidUse, match="not-a-distribution is not installed here"):
        packing.pack(tmp_path / "environment.tar.gz")
    assert not list(tmp_path.iterdir())
