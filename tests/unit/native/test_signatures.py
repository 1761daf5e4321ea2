"""Arguments are bound by name as Python binds them, for every official method that is wrapped."""

from __future__ import annotations

import inspect
import runpy
from pathlib import Path

import pulsar
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pulsar_ext
from pulsar_ext._native.signatures import named_arguments, with_official_arguments

METHODS = [
    pulsar.Client.__init__,
    pulsar.Client.subscribe,
    pulsar.Client.create_reader,
    pulsar.Client.create_producer,
    pulsar.Client.create_table_view,
]


@pytest.mark.parametrize("method", METHODS)
def test_official_methods_have_named_parameters_only(method):
    """Each argument of the official methods has a name, and no method has `*args` or `**kwargs`."""
    kinds = {one.kind for one in inspect.signature(method).parameters.values()}
    assert kinds <= {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}


def test_every_official_parameter_is_ours_too():
    """Each method has every parameter of the installed official client: in its position, and with its default."""
    program = Path(__file__).parents[3] / "typings" / "signatures.py"
    assert runpy.run_path(program)["missing"]() == []


@given(st.sampled_from(METHODS), st.integers(0, 40), st.data())
def test_arguments_are_bound_as_python_binds_them(method, placed, data):
    """Positional and keyword arguments and defaults are bound in order; invalid ones raise Python's TypeError."""
    names = [*inspect.signature(method).parameters][1:]
    args = tuple(range(placed))
    chosen = data.draw(st.sets(st.sampled_from([*names, "unknown"])))
    kwargs = {name: f"given {name}" for name in chosen}
    signature = inspect.signature(method)
    type_error = None
    try:
        bound = signature.bind(None, *args, **kwargs)
    except TypeError as error:
        type_error = str(error)
    if type_error is not None:
        with pytest.raises(TypeError) as raised:
            named_arguments(method, args, kwargs)
        assert str(raised.value) == f"{method.__qualname__}() {type_error}"
        return
    bound.apply_defaults()
    assert [("self", None), *named_arguments(method, args, kwargs).items()] == [*bound.arguments.items()]


def test_help_has_the_official_arguments():
    """A docstring continues with the official arguments; without docstrings, as with -OO, it is empty."""
    official = "Send.\n\n        Parameters\n        ----------\n\n        topic: str\n            The topic.\n        "
    shown = with_official_arguments("Send a message.", official)
    assert shown == "Send a message.\n\nThe official arguments\n----------------------\n\ntopic: str\n    The topic."
    assert with_official_arguments(None, None) == ""
    assert "receiver_queue_size: int, default=1000" in pulsar_ext.Client.subscribe.__doc__
