"""Attributes that are created at first use, without a lock, which would stay held after a fork."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload

T = TypeVar("T")


class lazy(Generic[T]):  # noqa: N801  # used as a decorator
    """Creates an attribute by calling the decorated method. If several threads race, all get one value."""

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make = make
        self._name = make.__name__

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: type) -> T: ...

    def __get__(self, instance: object | None, owner: type) -> T | Self:
        """Create the attribute in the instance's dictionary, where later look-ups find it directly."""
        if instance is None:
            return self
        made: T = vars(instance).setdefault(self._name, self._make(instance))  # atomic, in C
        return made

    def made_for(self, instance: object) -> T | None:
        """Return the attribute if it has been created, else None."""
        made: T | None = vars(instance).get(self._name)
        return made
