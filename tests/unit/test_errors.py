"""The error tree: one root, official, picklable, drawn in its own docstring."""

from __future__ import annotations

import pickle

import pulsar
import pytest

from pulsar_ext import errors

CLASSES = [getattr(errors, name) for name in errors.__all__]


@pytest.mark.parametrize("cls", CLASSES)
def test_every_error_is_an_official_exception_and_survives_pickling(cls):
    """`except pulsar.PulsarException` catches it; message and attributes come through a pickle."""
    error = cls("what happened", position="5:7", status=404)
    assert isinstance(error, pulsar.PulsarException)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is cls
    assert str(again) == "what happened"
    assert (again.position, again.status) == ("5:7", 404)


@pytest.mark.parametrize("cls", CLASSES)
def test_the_drawn_tree_names_every_error(cls):
    """The module's docstring shows each class."""
    assert f"{cls.__name__} " in errors.__doc__ or f"{cls.__name__}\n" in errors.__doc__
