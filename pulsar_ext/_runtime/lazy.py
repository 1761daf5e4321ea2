"""Attributes that are made when they are first asked for, without a lock: one that was held at a fork stays held."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self


T = TypeVar("T")


class lazy(Generic[T]):  # noqa: N801  # used as a decorator
    """Makes an attribute by the decorated method. Where several threads ask first, all get the same one."""

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make = make
        self._name = make.__name__

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: type) -> T: ...

    def __get__(self, instance: object | None, owner: type) -> T | Self:
        """Make it; from then on the instance's own dictionary has it, and this is not asked."""
        if instance is None:
            return self
        made: T = vars(instance).setdefault(self._name, self._make(instance))  # one step, in C
        return made

    def made_for(self, instance: object) -> T | None:
        """Give what was made; None if nobody has asked for it."""
        made: T | None = vars(instance).get(self._name)
        return made
