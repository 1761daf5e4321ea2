"""Signatures of the official client's methods: shown again, and bound by name."""

from __future__ import annotations

import inspect
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["default_arguments", "named_arguments", "shaped_like", "with_official_arguments"]


_PARAMETERS = "Parameters\n----------\n"
_F = TypeVar("_F", bound="Callable[..., Any]")
_signature_of = cache(inspect.signature)
"""It takes half a millisecond to find."""


def shaped_like(official: Callable[..., Any]) -> Callable[[_F], _F]:
    """Show a method with the official one's signature and arguments, and what it takes more by keyword."""

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
    """Return a docstring with what the official one says of the arguments, which ours calls the official ones.

    Args:
        ours: the docstring; None without one, as with `python -OO`.
        theirs: the official one, in the style of numpy.
    """
    said = inspect.cleandoc(theirs or "").partition(_PARAMETERS)[2].strip()
    own = inspect.cleandoc(ours or "")
    return f"{own}\n\nThe official arguments\n{'-' * 22}\n\n{said}" if said else own


def named_arguments(method: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Give every argument of a call of an official method by its name, defaults included.

    Raises:
        TypeError: as the call itself would, with the method's name.
    """
    # As `Signature.bind()` does, which takes a tenth of a millisecond; it is asked only for what to raise.
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
    """Give the names of what may be given by its place, and every argument's default, `Parameter.empty` for none."""
    parameters = [one for one in _signature_of(method).parameters.values() if one.name != "self"]
    names = tuple(one.name for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD)
    return names, {one.name: one.default for one in parameters}


def default_arguments(method: Callable[..., Any]) -> dict[str, Any]:
    """Give the defaults of an official method by the names of the arguments that have one."""
    known = _arguments_of(method)[1]
    return {name: default for name, default in known.items() if default is not inspect.Parameter.empty}
