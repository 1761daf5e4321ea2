"""Requested version, and order of versions."""

import random

import pytest

from pulsar_ext.errors import InvalidUse
from pulsar_ext.testing import PULSAR_VERSION
from pulsar_ext.testing.profiles import choose_version, newest_first, requested_version


def test_argument_takes_precedence_over_the_environment(monkeypatch):
    """The version is the argument, then the variable, then the default; an empty variable is ignored."""
    monkeypatch.setenv("PULSAR_EXT_PULSAR_VERSION", "4.0.7")
    assert choose_version("3.0.7") == "3.0.7"
    assert choose_version() == requested_version() == "4.0.7"
    monkeypatch.setenv("PULSAR_EXT_PULSAR_VERSION", "")
    assert choose_version() == PULSAR_VERSION
    assert requested_version() is None


def test_invalid_variable_raises(monkeypatch):
    """The variable's value is checked like an argument."""
    monkeypatch.setenv("PULSAR_EXT_PULSAR_VERSION", "new")
    with pytest.raises(InvalidUse, match="'new' is not a version"):
        choose_version()


def test_versions_are_listed_newest_first():
    """Numbers are compared as numbers, candidates are older than their release, and each version is listed once."""
    ordered = ["5.0.0.1", "5.0.0", "5.0.0-M1", "4.10.0", "4.9.0", "4.9.0-rc-2", "4.9.0-rc-1", "2.0.0-rc1-incubating"]
    mixed = ordered * 2
    random.Random(7).shuffle(mixed)
    assert newest_first(mixed) == ordered
