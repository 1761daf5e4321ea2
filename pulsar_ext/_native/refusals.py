"""Arguments that the C++ client would refuse in terms of its own, or only once they have done harm."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from pulsar_ext.errors import SequenceIdRejected

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["MAX_SEQUENCE_ID", "check_sequence_id", "plainly"]

MAX_SEQUENCE_ID: Final = (1 << 63) - 1
"""The broker compares them as Java's `long`."""
_BINDING = re.compile(r"(\w+)\(\): incompatible function arguments\.")
_ARGUMENTS = {"property": "properties"}
"""The arguments whose setters have other names."""


def check_sequence_id(sequence_id: object) -> None:
    """Refuse what is not a sequence id: automatic ones go on after the highest that was given.

    Raises:
        SequenceIdRejected: it is not a number from 0 to 2**63 - 1.
    """
    if isinstance(sequence_id, bool) or not isinstance(sequence_id, int) or not 0 <= sequence_id <= MAX_SEQUENCE_ID:
        raise SequenceIdRejected(
            f"{sequence_id!r} is not a sequence id: a number from 0 to 2**63 - 1. Nothing was sent.",
            sequence_id=sequence_id,
            last_pushed=None,
            last_published=None,
        )


def plainly(error: TypeError, arguments: Mapping[str, Any], unchanged: str) -> TypeError:
    """Return an error that names the argument which a setter of the C++ client refused; any other error as it is.

    Args:
        error: what the call raised.
        arguments: of the call, by name.
        unchanged: the sentence that says what was not done.
    """
    found = _BINDING.match(str(error))
    if found is None:
        return error
    name = _ARGUMENTS.get(found[1], found[1])
    return TypeError(f"{name} cannot be {arguments.get(name)!r}: the client does not take this value. {unchanged}")
