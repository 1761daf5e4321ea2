"""Signatures of the official client's methods: copied to ours, and bound by name."""

from __future__ import annotations

import inspect
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["default_arguments", "named_arguments", "with_official_arguments", "with_signature_of"]


_PARAMETERS = "Parameters\n----------\n"
_F = TypeVar("_F", bound="Callable[..., Any]")
_signature_of = cache(inspect.signature)
"""Cached, because it takes half a millisecond."""


def with_signature_of(official: Callable[..., Any]) -> Callable[[_F], _F]:
    """Copy the official method's signature and argument docs, and append our keyword-only parameters."""

    def shape(method: _F) -> _F:
        signature = inspect.signature(official)
        own = [
            one
            for one in inspect.signature(method).parameters.values()
            if one.kind is one.KEYWORD_ONLY and one.name not in signature.parameters
        ]
        parameters = [*signature.parameters.values(), *own]
        method.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        method.__doc__ = with_official_arguments(method.__doc__, official.__doc__)
        return method

    return shape


def with_official_arguments(ours: str | None, theirs: str | None) -> str:
    """Return our docstring followed by the official one's description of the arguments.

    Args:
        ours: our docstring; None with `python -OO`.
        theirs: the official docstring, in numpy style.
    """
    said = inspect.cleandoc(theirs or "").partition(_PARAMETERS)[2].strip()
    own = inspect.cleandoc(ours or "")
    return f"{own}\n\nThe official arguments\n{'-' * 22}\n\n{said}" if said else own


def named_arguments(method: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return all arguments of a call of an official method by name, with defaults.

    Raises:
        TypeError: as the call itself would, with the method's name.
    """
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
def _arguments_of(method: Callable[..., Any]) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Return the names of the positional parameters, and all parameters' defaults, `Parameter.empty` if required."""
    parameters = [one for one in _signature_of(method).parameters.values() if one.name != "self"]
    names = tuple(one.name for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD)
    return names, {one.name: one.default for one in parameters}


def default_arguments(method: Callable[..., Any]) -> dict[str, Any]:
    """Return the defaults of an official method's optional parameters by name."""
    known = _arguments_of(method)[1]
    return {name: default for name, default in known.items() if default is not inspect.Parameter.empty}
