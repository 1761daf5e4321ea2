"""Checks of arguments that the C++ client would reject with an unclear error, or too late."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from pulsar_ext.errors import SequenceIdRejected

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["MAX_SEQUENCE_ID", "argument_error", "check_sequence_id"]

MAX_SEQUENCE_ID: Final = (1 << 63) - 1
"""The broker compares sequence ids as Java's `long`."""
_BINDING = re.compile(r"(\w+)\(\): incompatible function arguments\.")
_ARGUMENTS = {"property": "properties"}
"""Arguments whose setters have other names."""


def check_sequence_id(sequence_id: object) -> None:
    """Raise if a value is not a sequence id; automatic sequence ids continue after the highest explicit one.

    Raises:
        SequenceIdRejected: it is not an int from 0 to 2**63 - 1.
    """
    if isinstance(sequence_id, bool) or not isinstance(sequence_id, int) or not 0 <= sequence_id <= MAX_SEQUENCE_ID:
        raise SequenceIdRejected(
            f"sequence_id must be an int from 0 to 2**63 - 1, got {sequence_id!r}. Nothing was sent.",
            sequence_id=sequence_id,
            last_pushed=None,
            last_published=None,
        )


def argument_error(error: TypeError, arguments: Mapping[str, Any], unchanged: str) -> TypeError:
    """Return an error that names the argument which a C++ setter rejected; return any other error unchanged.

    Args:
        error: the error of the call.
        arguments: the call's arguments by name.
        unchanged: the sentence about what was not done.
    """
    found = _BINDING.match(str(error))
    if found is None:
        return error
    name = _ARGUMENTS.get(found[1], found[1])
    return TypeError(f"{name} cannot be {arguments.get(name)!r}: the client does not accept this value. {unchanged}")
