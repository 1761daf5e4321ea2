"""The errors of reading and writing by Spark, branches of the tree in `pulsar_ext.errors`; picklable, as Spark needs.

PulsarExtError
├── DataLoss            entries that were to be read are gone
├── NotDelivered        entries exist, but no reader got them in time
└── NotWritten          a send failed, and with it the task
"""

from __future__ import annotations

from pulsar_ext.errors import PulsarExtError

__all__ = ["DataLoss", "NotDelivered", "NotWritten"]


class DataLoss(PulsarExtError):  # noqa: N818  # named for what happened, as the others are
    """Entries that were to be read were trimmed; `topic` and `position` are those of the first."""


class NotDelivered(PulsarExtError):  # noqa: N818  # named for what happened, as the others are
    """Entries exist but did not come in time; `topic` and `position` are where they were awaited."""

    retriable = True


class NotWritten(PulsarExtError):  # noqa: N818  # named for what happened, as the others are
    """A message could not be persisted on `topic`."""

    retriable = True
