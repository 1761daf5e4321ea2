"""The drop-in surface: every public name of `pulsar`, and exactly our own besides."""

from __future__ import annotations

import importlib
import pkgutil

import pulsar
import pytest

import pulsar_ext


@pytest.mark.parametrize("name", [name for name in dir(pulsar) if not name.startswith("_")])
def test_every_public_name_of_the_official_client_resolves(name):
    """Each name that `import pulsar` offers is there, and is the official thing unless it is ours by design."""
    ours, theirs = getattr(pulsar_ext, name), getattr(pulsar, name)
    assert ours is theirs or (isinstance(ours, type) and issubclass(ours, theirs)) or ours.__name__.endswith(name)


@pytest.mark.parametrize(
    "name", [m.name for m in pkgutil.walk_packages(pulsar.__path__, "pulsar.") if m.name != "pulsar.functions.python"]
)
def test_every_official_submodule_resolves(name):
    """`import pulsar_ext.functions` and the like give the official module itself, but for those that are ours."""
    official = importlib.import_module(name)
    ours = importlib.import_module(name.replace("pulsar.", "pulsar_ext.", 1))
    assert ours is official or name in ("pulsar.asyncio", "pulsar.schema")


def test_the_asyncio_module_has_every_official_name():
    """`pulsar_ext.asyncio` offers what `pulsar.asyncio` does; its own classes are subclasses."""
    theirs, ours = importlib.import_module("pulsar.asyncio"), importlib.import_module("pulsar_ext.asyncio")
    for name in dir(theirs):
        if not name.startswith("__"):
            one, other = getattr(ours, name), getattr(theirs, name)
            assert one is other or issubclass(one, other), name


def test_the_schema_module_has_every_official_name():
    """`pulsar_ext.schema` offers what `pulsar.schema` does; its own classes are subclasses."""
    theirs, ours = importlib.import_module("pulsar.schema"), importlib.import_module("pulsar_ext.schema")
    for name in dir(theirs):
        if not name.startswith("_"):
            one, other = getattr(ours, name), getattr(theirs, name)
            assert one is other or issubclass(one, other), name


def test_a_star_import_gives_what_the_official_one_gives():
    """`from pulsar_ext import *` offers every class and function that `from pulsar import *` does."""
    theirs, ours = {}, {}
    exec("from pulsar import *", theirs)
    exec("from pulsar_ext import *", ours)
    missing = {name for name in theirs if not name.startswith("_") and name not in ours}
    assert missing <= {"logging", "re", "timedelta", "Callable", "List", "Tuple", "Optional", "Union"}


def test_all_is_unique_and_true():
    """Every name in __all__ resolves, once."""
    assert len(set(pulsar_ext.__all__)) == len(pulsar_ext.__all__)
    for name in pulsar_ext.__all__:
        assert hasattr(pulsar_ext, name)


def test_an_unknown_name_is_an_attribute_error():
    """A misspelt name fails as on any module."""
    with pytest.raises(AttributeError):
        _ = pulsar_ext.no_such_name
