"""Message ids as text, in the formats of Java's `toString()` and the official client's `str()`, and counts (pure)."""

from __future__ import annotations

import re

from pulsar_ext.errors import InvalidMessageId

OrderKey = tuple[int, int, int, int]
"""Ledger, entry, partition and batch index: the order of Java's ids."""


_JAVA = re.compile(r"(-?\d{1,19}):(-?\d{1,19})(?::(-?\d{1,10}))?(?::(-?\d{1,10}))?", re.ASCII)
_OFFICIAL = re.compile(r"\((-?\d{1,19}),(-?\d{1,19}),(-?\d{1,10}),(-?\d{1,10})\)", re.ASCII)
_CONSONANT_Y = re.compile(r"(?<=[^aeiou])y$")
_SHOWN = 60
"""Length to which an invalid text is cut in an error."""


def counted(number: int, one: str, many: str = "") -> str:
    """Return a number and what it counts, such as `1 entry` or `1,000 entries`; `many` is by default regular."""
    if not many:
        many = _CONSONANT_Y.sub("ie", one) + ("es" if one.endswith("ch") else "s")
    return f"{number:,} {one if number == 1 else many}"


def read_text(text: str) -> list[OrderKey]:
    """Return the numbers of an id's text, or of the first and the last chunk's, separated by a semicolon.

    The formats are Java's `ledger:entry[:partition[:batch_index]]`, which includes positions, and the official
    client's `(ledger,entry,partition,batch_index)`. A number that is missing in the text is -1.
    """
    if not isinstance(text, str):
        raise InvalidMessageId(f"The text of a message id must be a str, got {type(text).__name__}.")
    matches = [_JAVA.fullmatch(part) or _OFFICIAL.fullmatch(part) for part in text.strip().split(";")]
    found = [match.groups(default="-1") for match in matches if match is not None]
    if len(found) < len(matches) or len(found) > 2:  # noqa: PLR2004  # first and last chunk
        shown = text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
        raise InvalidMessageId(
            f"{shown!r} is not a message id; expected 'ledger:entry:partition', "
            "'ledger:entry:partition:batch_index' or, for a chunked message, 'first;last'."
        )
    return [(int(ledger), int(entry), int(partition), int(batch)) for ledger, entry, partition, batch in found]


def text_of(key: OrderKey) -> str:
    """Return Java's text of an id that is not chunked."""
    ledger, entry, partition, batch = key
    text = f"{ledger}:{entry}:{partition}"
    return text if batch == -1 else f"{text}:{batch}"
