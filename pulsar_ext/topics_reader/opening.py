"""Opening of readers of several topics: one reader for each topic and partition, all of them or none.

`TopicWatch` polls for added partitions and for new topics of a pattern, which are read from their beginning.
"""

from __future__ import annotations

import contextlib
import logging
import re
import weakref
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pulsar

from pulsar_ext.errors import AdminError, AdminNotFound, InvalidUse, PulsarExtError
from pulsar_ext.ids.message_id import MessageId
from pulsar_ext.ids.topic_name import TopicName
from pulsar_ext.intercept.chain import register_chain
from pulsar_ext.intercept.receivers import intercept_reader
from pulsar_ext.key_shared.hash_ranges import SlotFilter, as_ranges
from pulsar_ext.key_shared.hashing import KeyForms
from pulsar_ext.key_shared.reader import check_topic_exists
from pulsar_ext.message import message_class
from pulsar_ext.receive.seeks import is_on_any_topic, partitions_of_each, targets_by_topic
from pulsar_ext.schema.choice import schema_of

from .reader import PartReader, RangePartReader, TopicsReader

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulsar_ext._runtime.context import ClientContext
    from pulsar_ext.intercept.chain import ReaderChain
    from pulsar_ext.key_shared.hash_ranges import KeyHashRanges, RangesLike
    from pulsar_ext.key_shared.hashing import KeyFormsMode


_log = logging.getLogger("pulsar_ext")


class TopicWatch:
    """Poll for topics and partitions; referenced by its reader."""

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

    def tick(self, now: float) -> float | None:  # noqa: ARG002  # it polls at each call
        """Poll; return the seconds until the next poll, None to stop."""
        reader = self._reader()
        if reader is None or reader.is_closed:
            return None
        known = reader.topics()
        try:
            found = self._find()
        except AdminError as error:  # the broker is unavailable: retry at the next poll
            _log.info("The topics of %s cannot be listed; the poll is retried: %s", reader.topic(), error)
            return self._seconds
        for topic in found:
            if topic not in known:
                self._open(reader, topic)
        if self._is_pattern:
            for topic in known:
                if topic not in found and self._is_deleted(topic):
                    reader._drop_(topic)
        return self._seconds

    def close(self) -> None:
        """Wake threads that read, because the client is closed."""
        reader = self._reader()
        if reader is not None:
            reader._release_()

    def _open(self, reader: TopicsReader, topic: str) -> None:
        """Open a topic; log an error, such as that of another schema, so that other topics are opened."""
        try:
            self._open_topic(topic)
        except (pulsar.PulsarException, PulsarExtError) as error:
            if not reader.is_closed:
                _log.warning("%s cannot be read; retrying in %.0f s: %s", topic, self._seconds, error)

    def _is_deleted(self, topic: str) -> bool:
        """Return whether the topic surely does not exist: opening it again would start at its beginning."""
        try:
            self._context.admin_api().stats(topic)
        except AdminNotFound:
            return True
        except AdminError:
            return False
        return False


_PARTITIONS_SECONDS: Final = 60
"""Interval of polls for added partitions, as in the official client and in Java's."""
_QUEUES: Final = 50_000
"""Limit of prefetched messages of all parts together, the default of a consumer of several topics."""


def reads_several(topic: Any) -> bool:
    """Return whether a reader's topic is a list of topics or a pattern."""
    return isinstance(topic, list | tuple | re.Pattern)


def open_topics_reader(
    context: ClientContext,
    named: dict[str, Any],
    ranges: RangesLike | KeyHashRanges | None,
    key_forms: KeyFormsMode,
    chain: ReaderChain | None,
    discovery_seconds: int,
) -> TopicsReader:
    """Open a reader of several topics; see `Client.create_reader()`."""
    topics = named["topic"] if isinstance(named["topic"], re.Pattern) else list(named["topic"])
    _check(named, topics, discovery_seconds)
    return _Opening(context, named, topics, ranges, key_forms, chain).open(discovery_seconds)


class _Opening:
    """Opening of one reader of several topics; the arguments are those of `open_topics_reader()`."""

    def __init__(
        self,
        context: ClientContext,
        named: dict[str, Any],
        topics: Any,
        ranges: RangesLike | KeyHashRanges | None,
        key_forms: KeyFormsMode,
        chain: ReaderChain | None,
    ) -> None:
        self._context, self._named, self._topics, self._chain = context, named, topics, chain
        self._ranges = None if ranges is None else as_ranges(ranges)
        self._key_forms: KeyFormsMode = key_forms
        self._queue = named["receiver_queue_size"]
        self._find = partial(partitions_of_each, context, topics)

    def open(self, discovery_seconds: int) -> TopicsReader:
        """Open the reader."""
        context, chain, is_pattern = self._context, self._chain, isinstance(self._topics, re.Pattern)
        if self._ranges is not None and not is_pattern:
            for topic in self._topics:
                check_topic_exists(context.admin_api(), topic)
        found = self._find()
        starts = _starts(self._named["start_message_id"], found)
        self._queue = max(1, min(self._queue, _QUEUES // max(len(found), 1)))
        schema = schema_of(self._named["schema"], context.admin_api, reads=True)  # each part makes its own copy
        reader = TopicsReader._without_parts_(context, self._topics, schema, message_class(schema, several_topics=True))
        if self._ranges is not None:
            reader.key_hash_ranges = self._ranges
        listener = self._named["reader_listener"]
        if listener and chain is not None:
            listener = chain.listening(listener)
        try:
            for topic in found:
                self._open_part(reader, listener, topic, starts[topic])
        except BaseException:
            with contextlib.suppress(pulsar.PulsarException):
                reader.close()
            raise
        if chain is not None:
            if not chain.awaited:
                intercept_reader(reader, chain)
            chain.show(reader)
            register_chain(context, chain, self._topics)
        seconds = discovery_seconds if is_pattern else _PARTITIONS_SECONDS

        def open_topic(topic: str) -> None:
            self._open_part(reader, listener, topic, MessageId.earliest)

        watch = TopicWatch(context, reader, self._find, open_topic, seconds, is_pattern=is_pattern)
        reader._set_watch_(watch)
        context.inquiries.watch(watch, seconds)
        return reader

    def _open_part(self, reader: TopicsReader, listener: Any, topic: str, start: Any) -> None:
        make: Callable[..., PartReader] = PartReader._assemble_
        part_listener = None if not listener else lambda _, message: listener(reader, message)
        if self._ranges is not None:
            wanted = SlotFilter(self._ranges, KeyForms(self._context.admin_api, self._key_forms))
            make = partial(RangePartReader._assemble_filtered_, wanted)
            if listener:
                part_listener = lambda _, message: wanted(message.inner) and listener(reader, message)  # noqa: E731
        named = {
            **self._named,
            "topic": topic,
            "start_message_id": start,
            "receiver_queue_size": self._queue,
            "reader_listener": part_listener,
        }
        reader._add_(topic, self._context.opener._open_reader_(named, make=make, several_topics=True))


def _check(named: dict[str, Any], topics: Any, discovery_seconds: int) -> None:
    """Raise before anything is opened if an argument is invalid."""
    if not isinstance(topics, re.Pattern):
        if not topics:
            raise InvalidUse("The list of topics must not be empty. Nothing was opened.")
        if len({TopicName.parse(topic) for topic in topics}) != len(topics):
            raise InvalidUse(f"The topics must differ, got duplicates in {topics}. Nothing was opened.")
    size = named["receiver_queue_size"]
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise InvalidUse(f"receiver_queue_size of a reader of several topics must be an int >= 1, got {size!r}.")
    if isinstance(discovery_seconds, bool) or not isinstance(discovery_seconds, int) or discovery_seconds < 1:
        raise InvalidUse(f"pattern_auto_discovery_period must be an int >= 1, got {discovery_seconds!r}.")


def _starts(start: Any, topics: list[str]) -> dict[str, Any]:
    """Return the start of each topic or partition."""
    if not isinstance(start, Mapping):
        if isinstance(start, int) or not is_on_any_topic(start):
            raise InvalidUse(
                f"A reader of several topics cannot start at {start!r}: pass MessageId.earliest, MessageId.latest, or "
                "a dict from topics to ids. Nothing was opened."
            )
        return dict.fromkeys(topics, start)
    found = targets_by_topic(start, topics)
    missing = [topic for topic in topics if topic not in found]
    if missing:
        raise InvalidUse(f"start_message_id has no entry for {', '.join(missing)}. Nothing was opened.")
    if any(isinstance(one, int) for one in found.values()):
        raise InvalidUse("A reader of several topics cannot start at a time: open it, and then seek() to the time.")
    return found
