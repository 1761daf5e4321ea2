"""What happens where messages that were to be read are gone.

That raises, each time, until a person has accepted the loss: by its name, in option `acceptDataLoss`, or as any loss,
with `failOnDataLoss=false`. Then it is a warning. So whatever finds one reports it before it changes anything.
"""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .errors import DataLoss

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pulsar_ext.ids.position import Position

    from .options import Settings

_log = logging.getLogger("pulsar_ext.spark")


@dataclass(frozen=True, slots=True)
class Loss:
    """Messages that are gone.

    Args:
        topic: the topic partition.
        position: of the first entry that is gone, or of the one before it.
        until: the first ledger behind what is gone; None if that is one entry or one ledger.
        what: what is gone, as a sentence without its full stop.
    """

    topic: str
    position: Position
    until: int | None
    what: str

    @property
    def name(self) -> str:
        """The name by which a person accepts it: the same as long as the same is gone."""
        return f"loss-{hashlib.sha256(f'{self.topic} {self.position} {self.until}'.encode()).hexdigest()[:12]}"


def report_data_loss(settings: Settings, losses: Sequence[Loss]) -> None:
    """Raise, or warn of those that a person has accepted.

    Raises:
        DataLoss: one was not accepted, and `failOnDataLoss` is true.
    """
    accepted = settings["acceptDataLoss"] or ()
    fatal = [loss for loss in losses if settings["failOnDataLoss"] and loss.name not in accepted]
    if fatal:
        names = ",".join(dict.fromkeys((*accepted, *(loss.name for loss in fatal))))
        raise DataLoss(
            f"{'. '.join(loss.what for loss in fatal)}. This raises again at each start, until you accept it: option "
            f"acceptDataLoss={names} continues without what is gone, failOnDataLoss=false without this and whatever "
            "else is lost; a new checkpoint starts anew.",
            topic=fatal[0].topic,
            position=fatal[0].position,
        )
    for loss in losses:
        how = "failOnDataLoss=false" if loss.name not in accepted else f"acceptDataLoss={loss.name}"
        _log.warning("%s; continuing without it (%s)", loss.what, how)
