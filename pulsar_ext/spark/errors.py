"""Errors of reading and writing with Spark, subclasses of `PulsarExtError`; picklable, as Spark requires.

PulsarExtError
├── DataLoss            entries that were to be read no longer exist
├── NotDelivered        entries exist, but no reader received them in time
└── NotWritten          a send failed, and with it the task

A loss of messages that were to be read raises at each start until the user accepts it: by its name, with option
`acceptDataLoss`, or any loss, with `failOnDataLoss=false`. An accepted loss is logged as a warning. Code that detects a
loss reports it before it changes any state.
"""

from __future__ import annotations

import hashlib
import logging
import re
from dataclasses import dataclass

from pulsar_ext.errors import PulsarExtError
from pulsar_ext.ids.position import Position

from .options import Settings

_log = logging.getLogger("pulsar_ext.spark")

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


@dataclass(frozen=True, slots=True)
class Loss:
    """Lost messages of a topic partition: the first entry, or the one before it, and the first ledger after them."""

    topic: str
    position: Position
    until: int | None
    what: str
    """A sentence without its full stop."""

    @property
    def name(self) -> str:
        """Name by which the user accepts the loss; it depends only on topic, position and `until`."""
        return f"loss-{hashlib.sha256(f'{self.topic} {self.position} {self.until}'.encode()).hexdigest()[:12]}"


def report_data_loss(settings: Settings, *found: Loss | None) -> None:
    """Raise unless every loss was accepted; log a warning for each accepted one."""
    losses = [loss for loss in found if loss is not None]
    accepted = settings["acceptDataLoss"] or ()
    fatal = [loss for loss in losses if settings["failOnDataLoss"] and loss.name not in accepted]
    if fatal:
        names = ",".join(dict.fromkeys((*accepted, *(loss.name for loss in fatal))))
        raise DataLoss(
            f"{'. '.join(loss.what for loss in fatal)}. This error repeats at each start until you accept it: option "
            f"acceptDataLoss={names} continues without these messages, failOnDataLoss=false without any lost message; "
            "or start with a new checkpoint.",
            topic=fatal[0].topic,
            position=fatal[0].position,
        )
    for loss in losses:
        how = "failOnDataLoss=false" if loss.name not in accepted else f"acceptDataLoss={loss.name}"
        _log.warning("%s; continuing without it (%s)", loss.what, how)
