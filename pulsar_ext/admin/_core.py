"""Requests and responses of the admin REST API as values (pure)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Answer:
    """HTTP response: the status, headers with lower-case names and Latin-1 values, and the body."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """Decode the body as JSON; an empty body, which means "not set", is None."""
        return json.loads(self.body) if self.body else None

    def text(self) -> str:
        """Decode the body as UTF-8, with invalid bytes replaced."""
        return self.body.decode(errors="replace")


def nothing(_answer: Answer) -> None:
    """Parse the response of a call that only succeeds or fails."""


def names(answer: Answer) -> tuple[str, ...]:
    return tuple(sorted(answer.json()))


def parsed(read: Callable[[Any], T]) -> Callable[[Answer], T]:
    return lambda answer: read(answer.json())


def optional(read: Callable[[Any], T]) -> Callable[[Answer], T | None]:
    """Return a parser of a policy, which returns None if the policy is not set."""
    return lambda answer: None if (data := answer.json()) is None else read(data)


@dataclass(frozen=True, slots=True)
class Request(Generic[T]):
    method: str
    path: str
    """The path below `/admin/v2/`, percent-encoded."""
    parse: Callable[[Answer], T]
    """Parser of a successful response."""
    params: Mapping[str, str | int | bool | None] = field(default_factory=dict)
    """The query; None values are omitted, booleans are written in Java's form."""
    body: object = None
    """Sent as JSON unless it is None."""
    idempotent: bool | None = None
    """If sending it twice has the effect of sending it once; None means only for GET and HEAD."""

    @property
    def may_repeat(self) -> bool:
        """True if it may be sent again although the broker may have processed it."""
        return self.method in {"GET", "HEAD"} if self.idempotent is None else self.idempotent

    def query(self) -> dict[str, str]:
        return {
            name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in self.params.items()
            if value is not None
        }

    def content(self) -> bytes | None:
        return None if self.body is None else json.dumps(self.body).encode()
