"""Errors of reading and writing with Spark, subclasses of `PulsarExtError`; picklable, as Spark requires.

PulsarExtError
├── DataLoss            entries that were to be read no longer exist
├── NotDelivered        entries exist, but no reader received them in time
└── NotWritten          a send failed, and with it the task
"""

from __future__ import annotations

import re

from pulsar_ext.errors import PulsarExtError

_OURS = re.compile(r"^(?:pulsar_ext|_pulsar)\.(?:\w+\.)*\w+: (.+)$", re.MULTILINE)
_CALL = re.compile(r"^An error occurred while calling \S+\n: ")
_SQL_STATE = re.compile(r" SQLSTATE: \w+$")


def reason(text: str) -> str:
    """Return the line of an error's text that states the cause; others are tracebacks of a worker and of Java."""
    ours: list[str] = _OURS.findall(text)
    if ours:
        return ours[-1]
    if "[JAVA_GATEWAY_EXITED]" in text:
        return "Spark needs Java 17 or newer, and could not start it: set JAVA_HOME, or have java on the PATH"
    return _SQL_STATE.sub("", _CALL.sub("", text.strip()).partition("\n")[0])


class DataLoss(PulsarExtError):  # noqa: N818  # named for what happened, as the others are
    """Entries that were to be read were trimmed; `topic` and `position` are those of the first one."""


class NotDelivered(PulsarExtError):  # noqa: N818  # named for what happened, as the others are
    """Entries exist but were not received in time; `topic` and `position` are those of the first one expected."""

    retriable = True


class NotWritten(PulsarExtError):  # noqa: N818  # named for what happened, as the others are
    """A message could not be persisted on `topic`."""

    retriable = True
