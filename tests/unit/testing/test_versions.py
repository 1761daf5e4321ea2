"""Which version is asked for, and in what order versions are listed."""

import random

import pytest

from pulsar_ext.errors import InvalidUse
from pulsar_ext.testing import PULSAR_VERSION
from pulsar_ext.testing.profiles import asked_version, choose_version, newest_first


def test_the_argument_wins_over_the_environment(monkeypatch):
    """Argument, then variable, then the default; an empty variable counts as none."""
    monkeypatch.setenv("PULSAR_EXT_PULSAR_VERSION", "4.0.7")
    assert choose_version("3.0.7") == "3.0.7"
    assert choose_version() == asked_version() == "4.0.7"
    monkeypatch.setenv("PULSAR_EXT_PULSAR_VERSION", "")
    assert choose_version() == PULSAR_VERSION
    assert asked_version() is None


def test_a_wrong_variable_is_told(monkeypatch):
    """What the variable holds is checked as an argument is."""
    monkeypatch.setenv("PULSAR_EXT_PULSAR_VERSION", "new")
    with pytest.raises(InvalidUse, match="'new' is not a version"):
        choose_version()


def test_newest_first():
    """Numbers count as numbers, candidates come before their release, and each is listed once."""
    ordered = ["5.0.0.1", "5.0.0", "5.0.0-M1", "4.10.0", "4.9.0", "4.9.0-rc-2", "4.9.0-rc-1", "2.0.0-rc1-incubating"]
    mixed = ordered * 2
    random.Random(7).shuffle(mixed)
    assert newest_first(mixed) == ordered
