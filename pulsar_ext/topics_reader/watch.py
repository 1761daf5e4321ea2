"""Looking for partitions that were added, and for topics of a pattern: a reader reads them from their beginning."""

from __future__ import annotations

import logging
import weakref
from typing import TYPE_CHECKING

import pulsar

from pulsar_ext.errors import AdminError, AdminNotFound, PulsarExtError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulsar_ext._runtime.context import ClientContext

    from .reader import TopicsReader

__all__ = ["TopicWatch"]

_log = logging.getLogger("pulsar_ext")


class TopicWatch:
    """Looks from time to time; kept by its reader.

    Args:
        context: of the client.
        reader: what reads them.
        find: gives the full names of all topics and partitions that there are.
        open_topic: opens one of them at its beginning, and has the reader read it.
        seconds: how long to wait between two looks.
        is_pattern: whether topics come and go.
    """

    def __init__(
        self,
        context: ClientContext,
        reader: TopicsReader,
        find: Callable[[], list[str]],
        open_topic: Callable[[str], None],
        seconds: float,
        *,
        is_pattern: bool,
    ) -> None:
        self._context, self._find, self._open_topic = context, find, open_topic
        self._reader = weakref.ref(reader)
        self._seconds, self._is_pattern = seconds, is_pattern

    def tick(self, now: float) -> float | None:  # noqa: ARG002  # it looks whenever it is called
        """Look; give after how many seconds to look again, None for never."""
        reader = self._reader()
        if reader is None or reader.is_closed:
            return None
        known = reader.topics()
        try:
            found = self._find()
        except AdminError as error:  # the broker is away, and is asked again
            _log.info("The topics of %s cannot be listed now: %s", reader.topic(), error)
            return self._seconds
        for topic in found:
            if topic not in known:
                self._open(reader, topic)
        if self._is_pattern:
            for topic in known:
                if topic not in found and self._is_gone(topic):
                    reader._drop_(topic)
        return self._seconds

    def close(self) -> None:
        """Have whoever reads find out that the client is closed."""
        reader = self._reader()
        if reader is not None:
            reader._release_()

    def _open(self, reader: TopicsReader, topic: str) -> None:
        """Have a topic read; one that cannot be, such as of another schema, does not keep others from it."""
        try:
            self._open_topic(topic)
        except (pulsar.PulsarException, PulsarExtError) as error:
            if not reader.is_closed:
                _log.warning("%s cannot be read, and is tried again in %.0f s: %s", topic, self._seconds, error)

    def _is_gone(self, topic: str) -> bool:
        """Whether there is no such topic for sure: one that is read anew would be read from its beginning."""
        try:
            self._context.admin_api().stats(topic)
        except AdminNotFound:
            return True
        except AdminError:
            return False
        return False
