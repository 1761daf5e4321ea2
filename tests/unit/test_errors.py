"""The error tree: one root, official, picklable, and drawn in its docstring."""

from __future__ import annotations

import pickle

import pulsar
import pytest

from pulsar_ext import errors

CLASSES = [getattr(errors, name) for name in errors.__all__]


@pytest.mark.parametrize("cls", CLASSES)
def test_errors_are_official_exceptions_and_picklable(cls):
    """`except pulsar.PulsarException` catches each error; message and attributes survive pickling."""
    error = cls("what happened", position="5:7", status=404)
    assert isinstance(error, pulsar.PulsarException)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is cls
    assert str(again) == "what happened"
    assert (again.position, again.status) == ("5:7", 404)


@pytest.mark.parametrize("cls", CLASSES)
def test_docstring_tree_names_every_error(cls):
    """The module's docstring shows each class."""
    assert f"{cls.__name__} " in errors.__doc__ or f"{cls.__name__}\n" in errors.__doc__
