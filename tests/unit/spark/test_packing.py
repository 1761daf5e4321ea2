"""Packing of the library for executors."""

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
from pulsar_ext.spark import shipping

_PROJECT = Path(__file__).parents[3] / "pyproject.toml"


def test_packing_roots_match_the_requirements():
    """The packed distributions are the requirements of the project and of its Spark extra, without Spark."""
    project = tomllib.loads(_PROJECT.read_text())["project"]
    required = [*project["dependencies"], *project["optional-dependencies"]["spark"]]
    names = {re.match(r"[\w-]+", one)[0] for one in required}
    assert set(shipping.ROOTS) == names - {"pyspark"}


def test_packed_environment_runs(tmp_path, monkeypatch):
    """A packed environment, unpacked elsewhere, imports the library and its own dependency, and nothing else."""
    monkeypatch.setattr(shipping, "ROOTS", ("pulsar-client", "httpx2", "tenacity", "mmh3"))
    packed = shipping.pack(tmp_path / "environment.tar.gz")
    assert packed[0].startswith("pulsar_ext ")
    assert any(one.startswith("httpcore2 ") for one in packed), "a dependency of a dependency is missing"
    home = tmp_path / "elsewhere"
    home.mkdir()
    with tarfile.open(tmp_path / "environment.tar.gz") as archive:
        # Spark rejects an archive with an entry for the directory itself.
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


def test_library_zip_is_importable(tmp_path):
    """A zip contains only the library, which can be imported from it."""
    target = tmp_path / "library.zip"
    assert len(shipping.pack(target)) == 1
    with zipfile.ZipFile(target) as archive:
        assert {name.split("/")[0] for name in archive.namelist()} == {"pulsar_ext"}
    program = "import pulsar_ext.spark.shipping; print(pulsar_ext.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(target)},
        cwd=tmp_path,
    )
    assert done.stdout.startswith(str(target)), done.stderr


def test_invalid_packing_raises(tmp_path, monkeypatch):
    """An unsupported file name or a missing dependency raises, and nothing is written."""
    with pytest.raises(InvalidUse, match=r"\.tar\.gz for a whole environment"):
        shipping.pack(tmp_path / "environment.tar")
    monkeypatch.setattr(shipping, "ROOTS", ("pulsar-client", "not-a-distribution"))
    with pytest.raises(InvalidUse, match="not-a-distribution is not installed here"):
        shipping.pack(tmp_path / "environment.tar.gz")
    assert not list(tmp_path.iterdir())
