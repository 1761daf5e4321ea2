"""Arguments of the official client's methods: copied signatures, binding by name, and clear errors for invalid ones."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from copy import copy
from functools import cache
from typing import Any, Final, TypeVar

import _pulsar
from pulsar.schema import BytesSchema

from pulsar_ext.errors import SequenceIdRejected

binding = _pulsar
"""The binding, for the types of arguments: the official package has no type hints."""
Arguments = dict[str, Any]
"""Arguments of an official method by name."""

_PARAMETERS = "Parameters\n----------\n"
_F = TypeVar("_F", bound="Callable[..., object]")
_BYTES: Final = BytesSchema()
_signature_of = cache(inspect.signature)
"""Cached, because it takes half a millisecond."""


def with_signature_of(official: Callable[..., object]) -> Callable[[_F], _F]:
    """Copy the official method's signature and argument docs, and append our keyword-only parameters."""

    def shape(method: _F) -> _F:
        signature = inspect.signature(official)
        named = (one for one in inspect.signature(method).parameters.values() if one.kind is one.KEYWORD_ONLY)
        own = [one for one in named if one.name not in signature.parameters]
        method.__signature__ = signature.replace(parameters=[*signature.parameters.values(), *own])  # type: ignore[attr-defined]
        method.__doc__ = with_official_arguments(method.__doc__, official.__doc__)
        return method

    return shape


def documented_by(official: Callable[..., object]) -> Callable[[_F], _F]:
    """Append the official method's docs of the arguments to those of ours, which has the same ones and more."""

    def complete(method: _F) -> _F:
        method.__doc__ = with_official_arguments(method.__doc__, official.__doc__)
        return method

    return complete


def with_official_arguments(ours: str | None, theirs: str | None) -> str:
    said = inspect.cleandoc(theirs or "").partition(_PARAMETERS)[2].strip()
    own = inspect.cleandoc(ours or "")
    return f"{own}\n\nThe official arguments\n{'-' * 22}\n\n{said}" if said else own


def official_arguments(method: Callable[..., object], local: Arguments) -> Arguments:
    """Return the arguments of an official method out of the local variables of ours; without a schema, it is bytes.

    A newer official client's parameter that ours lacks has its default.
    """
    defaults = _arguments_of(method)[1]
    named = dict(zip(defaults, map(local.get, defaults, defaults.values()), strict=True))
    if "schema" in named and named["schema"] is None:
        named["schema"] = copy(_BYTES)  # the constructor takes longer, as it writes JSON
    return named


def own_arguments(local: Arguments, *without: str) -> Arguments:
    """Return a method's arguments out of its local variables, except some and `self`."""
    return {name: value for name, value in local.items() if name != "self" and name not in without}


def named_arguments(method: Callable[..., object], args: tuple[object, ...], kwargs: Arguments) -> Arguments:
    """Return all arguments of a call of an official method by name, with defaults."""
    # A fast `Signature.bind()`, which takes 0.1 ms; that is called only to raise its error.
    names, known = _arguments_of(method)
    named = known | dict(zip(names, args, strict=False)) | kwargs
    fits = len(args) <= len(names) and len(named) == len(known) and kwargs.keys().isdisjoint(names[: len(args)])
    if not fits or any(value is inspect.Parameter.empty for value in named.values()):
        try:
            _signature_of(method).bind(None, *args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{method.__qualname__}() {error}") from None
    return named


@cache
def _arguments_of(method: Callable[..., object]) -> tuple[tuple[str, ...], Arguments]:
    """Return the names of the positional parameters, and all parameters' defaults, `Parameter.empty` if required."""
    parameters = [one for one in _signature_of(method).parameters.values() if one.name != "self"]
    names = tuple(one.name for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD)
    return names, {one.name: one.default for one in parameters}


def argument_names(method: Callable[..., object]) -> tuple[str, ...]:
    return tuple(_arguments_of(method)[1])


MAX_SEQUENCE_ID: Final = (1 << 63) - 1
"""The broker compares sequence ids as Java's `long`."""
_BINDING = re.compile(r"(\w+)\(\): incompatible function arguments\.")
_ARGUMENTS = {"property": "properties"}
"""Arguments whose setters have other names."""


def check_sequence_id(sequence_id: object) -> None:
    """Raise if a value is not a sequence id; automatic sequence ids continue after the highest explicit one."""
    if isinstance(sequence_id, bool) or not isinstance(sequence_id, int) or not 0 <= sequence_id <= MAX_SEQUENCE_ID:
        raise SequenceIdRejected(
            f"sequence_id must be an int from 0 to 2**63 - 1, got {sequence_id!r}. Nothing was sent.",
            sequence_id=sequence_id,
            last_pushed=None,
            last_published=None,
        )


def argument_error(error: TypeError, arguments: Mapping[str, object], unchanged: str) -> TypeError:
    """Return an error that names the argument which a C++ setter rejected; return any other error unchanged."""
    found = _BINDING.match(str(error))
    if found is None:
        return error
    name = _ARGUMENTS.get(found[1], found[1])
    return TypeError(f"{name} cannot be {arguments.get(name)!r}: the client does not accept this value. {unchanged}")
