"""The errors of reading and writing by Spark, branches of the tree in `pulsar_ext.errors`; picklable, as Spark needs.

PulsarExtError
├── DataLoss            entries that were to be read are gone
├── NotDelivered        entries are there, and no reader gets them in time
└── NotWritten          a send failed, so the task fails
"""

from __future__ import annotations

from pulsar_ext.errors import PulsarExtError

__all__ = ["DataLoss", "NotDelivered", "NotWritten"]


class DataLoss(PulsarExtError):  # noqa: N818  # named for what is the case, as the others are
    """Entries that were to be read were trimmed; `topic` and `position` say which is the first."""


class NotDelivered(PulsarExtError):  # noqa: N818  # named for what is the case, as the others are
    """Entries exist and did not come in time; `topic` and `position` say where."""

    retriable = True


class NotWritten(PulsarExtError):  # noqa: N818  # named for what is the case, as the others are
    """A message could not be persisted; `topic` says where."""

    retriable = True
