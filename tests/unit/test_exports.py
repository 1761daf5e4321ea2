"""`pulsar_ext` exports every public name of `pulsar`, and its own names."""

from __future__ import annotations

import importlib
import pkgutil

import pulsar
import pytest

import pulsar_ext


@pytest.mark.parametrize("name", [name for name in dir(pulsar) if not name.startswith("_")])
def test_every_official_name_is_exported(name):
    """Each public name of `pulsar` is exported, as the official object or a replacement."""
    own, official = getattr(pulsar_ext, name), getattr(pulsar, name)
    assert own is official or (isinstance(own, type) and issubclass(own, official)) or own.__name__.endswith(name)


@pytest.mark.parametrize(
    "name", [m.name for m in pkgutil.walk_packages(pulsar.__path__, "pulsar.") if m.name != "pulsar.functions.python"]
)
def test_every_official_submodule_resolves(name):
    """Each official submodule is importable below `pulsar_ext`, as the official module or a replacement."""
    official = importlib.import_module(name)
    own = importlib.import_module(name.replace("pulsar.", "pulsar_ext.", 1))
    assert own is official or name in ("pulsar.asyncio", "pulsar.schema")


def test_the_asyncio_module_has_every_official_name():
    """`pulsar_ext.asyncio` exports the names of `pulsar.asyncio`; its own classes are subclasses."""
    official, own = importlib.import_module("pulsar.asyncio"), importlib.import_module("pulsar_ext.asyncio")
    for name in dir(official):
        if not name.startswith("__"):
            one, other = getattr(own, name), getattr(official, name)
            assert one is other or issubclass(one, other), name


def test_the_schema_module_has_every_official_name():
    """`pulsar_ext.schema` exports the names of `pulsar.schema`; its own classes are subclasses."""
    official, own = importlib.import_module("pulsar.schema"), importlib.import_module("pulsar_ext.schema")
    for name in dir(official):
        if not name.startswith("_"):
            one, other = getattr(own, name), getattr(official, name)
            assert one is other or issubclass(one, other), name


def test_star_import_has_the_official_names():
    """`from pulsar_ext import *` imports every class and function of `from pulsar import *`."""
    official, own = {}, {}
    exec("from pulsar import *", official)
    exec("from pulsar_ext import *", own)
    missing = {name for name in official if not name.startswith("_") and name not in own}
    assert missing <= {"logging", "re", "timedelta", "Callable", "List", "Tuple", "Optional", "Union"}


def test_all_names_are_unique_and_resolve():
    """Every name in `__all__` is unique and resolves."""
    assert len(set(pulsar_ext.__all__)) == len(pulsar_ext.__all__)
    for name in pulsar_ext.__all__:
        assert hasattr(pulsar_ext, name)


def test_unknown_name_raises_attribute_error():
    """A misspelt name raises AttributeError."""
    with pytest.raises(AttributeError):
        _ = pulsar_ext.no_such_name
