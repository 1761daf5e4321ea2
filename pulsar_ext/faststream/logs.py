"""FastStream's log lines of this broker: `subscription | topic | message id - text`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from faststream._internal.logger import DefaultLoggerStorage, make_logger_state
from faststream._internal.logger.logging import get_broker_logger

if TYPE_CHECKING:
    from faststream._internal.basic_types import LoggerProto
    from faststream._internal.context import ContextRepo
    from faststream._internal.logger import LoggerState

__all__ = ["logger_state"]

_ID_WIDTH: Final = 10
_LONGEST_ID: Final = 200
"""FastStream cuts ids at a length; this is more than that of two ids, as a chunked message has."""


class _Columns(DefaultLoggerStorage):
    """The columns are as wide as what is known when the broker connects."""

    def __init__(self) -> None:
        super().__init__()
        self._widths = {"subscription": 0, "topic": 0}

    def register_subscriber(self, params: dict[str, Any]) -> None:
        for name, width in self._widths.items():
            self._widths[name] = max(width, len(params.get(name, "")))

    def get_logger(self, *, context: ContextRepo) -> LoggerProto:
        logger = self._get_logger_ref()
        if logger is None:
            columns = "".join(f"%({name})-{width}s | " for name, width in self._widths.items() if width)
            logger = get_broker_logger(
                name="pulsar",
                default_context=dict.fromkeys(self._widths, ""),
                message_id_ln=_LONGEST_ID,
                fmt=f"%(asctime)s %(levelname)-8s - {columns}%(message_id)-{_ID_WIDTH}s - %(message)s",
                context=context,
                log_level=self.logger_log_level,
            )
            self._logger_ref.add(logger)
        return logger


def logger_state(logger: LoggerProto | None, log_level: int) -> LoggerState:
    """Give what logs: the application's logger, one of FastStream's by default, or None for none."""
    return make_logger_state(logger=logger, log_level=log_level, default_storage_cls=_Columns)
