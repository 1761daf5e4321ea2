"""What happens where messages that were to be read are gone: an error, or a warning with `failOnDataLoss=false`."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from .errors import DataLoss

if TYPE_CHECKING:
    from pulsar_ext.ids.position import Position

    from .options import Settings

__all__ = ["report_data_loss"]

_log = logging.getLogger("pulsar_ext.spark")


def report_data_loss(settings: Settings, topic: str, position: Position, message: str) -> None:
    """Raise, or warn if option `failOnDataLoss` is false.

    Args:
        settings: the options.
        topic: the topic partition.
        position: of the first entry that is gone, or of the one before it.
        message: what is gone.

    Raises:
        DataLoss: unless `failOnDataLoss` is false.
    """
    if settings["failOnDataLoss"]:
        raise DataLoss(
            f"{message}. Set option failOnDataLoss=false to continue without what is gone.",
            topic=topic,
            position=position,
        )
    _log.warning("%s; continuing without it (failOnDataLoss=false)", message)
