"""Planning of a read by the admin API: topics, their ledgers, and the offsets at which reading begins and ends."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from functools import partial
from typing import TypeVar

from pulsar_ext.admin import CursorInfo, InternalStats, PulsarAdmin
from pulsar_ext.chunks.search import entry_headers, resolve_chunks
from pulsar_ext.errors import (
    AdminNotFound,
    AdminPrecondition,
    IncompleteChunkedMessage,
    InvalidUse,
    MessageIdNotFound,
    MessageIdUnresolved,
    NoSuchTopic,
)
from pulsar_ext.ids.position import Ledgers, Position
from pulsar_ext.ids.topic_name import TopicName
from pulsar_ext.skip.boundaries import before_open_transactions

from .connection import admin_of
from .errors import Loss, report_data_loss
from .offsets import BEGINNING, Offset, Segment, TopicState, lost_before
from .options import Settings

T = TypeVar("T")

_SAMPLES = 5
_samples: dict[str, tuple[int, int]] = {}
_known_readable: dict[str, Position] = {}
"""Last entry of each topic when it had no open transaction before it; no later transaction changes that."""


def topics_of(settings: Settings) -> list[str]:
    """Return the full name of every topic partition to read, sorted."""
    names = settings["topics"] or (settings["topic"],)
    parents = map(TopicName.parse, names) if settings["topicsPattern"] is None else _matching(settings)
    return sorted({topic for parent in parents for topic in _partitions(parent, settings)})


def _partitions(parent: TopicName, settings: Settings) -> list[str]:
    if not parent.is_persistent:
        raise InvalidUse(f"{parent} is not persistent: it stores nothing to read.")
    admin = admin_of(settings)
    try:
        count = 0 if parent.is_partition else admin.partitions(parent)
        if not count:
            admin.stats(parent)
    except AdminNotFound as error:
        if settings["waitingForNonExistedTopic"] or settings["topicsPattern"] is not None:
            return []  # a topic that matches the pattern was deleted after the topics were listed
        raise NoSuchTopic(
            f"Topic {parent} does not exist: {error.reason}. Create it first"
            + (", or set option waitingForNonExistedTopic=true." if settings.where == "streaming read" else "."),
            topic=str(parent),
        ) from None
    return [str(parent.partition(index)) for index in range(count)] or [str(parent)]


def _matching(settings: Settings) -> list[TopicName]:
    pattern = settings["topicsPattern"]
    namespace, _, expression = pattern.removeprefix("persistent://").rpartition("/")
    if namespace.count("/") != 1:
        raise InvalidUse(f"Option topicsPattern {pattern!r}: write it as tenant/namespace/expression.")
    wanted = re.compile(expression)
    parents = {TopicName.parse(name).parent for name in admin_of(settings).topics(namespace)}
    return sorted(name for name in parents if wanted.fullmatch(name.name))


def stats_of(settings: Settings, topics: Iterable[str] | None = None) -> dict[str, InternalStats]:
    """Return the ledgers and cursors of the partitions to read, or of some; the broker deletes idle ones."""
    found = {}
    for topic in topics_of(settings) if topics is None else topics:
        with contextlib.suppress(AdminNotFound):  # the broker creates them one by one
            found[topic] = admin_of(settings).internal_stats(topic)
    return found


def state_of(settings: Settings, topic: str, stats: InternalStats) -> TopicState:
    """Return the state of a topic partition up to the first open transaction; its entries are sampled once."""
    admin = admin_of(settings)
    sizes = _readable(topic, tuple(sorted(stats.ledger_sizes())), admin)
    compacted = stats.compacted if settings["readCompacted"] else None
    kept = None if compacted is None else compacted.entries
    if topic not in _samples and any(count for _, count in sizes):
        _samples[topic] = _sample(admin, topic, Ledgers(sizes))
    return TopicState(topic, sizes, stats.total_size, *_samples.get(topic, (1, 1)), kept)


def _readable(topic: str, sizes: tuple[tuple[int, int], ...], admin: PulsarAdmin) -> tuple[tuple[int, int], ...]:
    """Return the ledgers of a topic up to the first open transaction: the broker delivers no entry after its start."""
    ledgers = Ledgers(sizes)
    if ledgers.last is None or _known_readable.get(topic) == ledgers.last:
        return sizes
    readable = before_open_transactions(ledgers, partial(entry_headers, admin, topic))
    if readable is not ledgers:
        held_back = ledgers.next(readable.last or Position(-1, -1))
        assert held_back is not None  # noqa: S101  # the readable part has fewer entries
        counts = dict(readable)
        return tuple((ledger, counts.get(ledger, 0)) for ledger, _ in sizes if ledger <= held_back.ledger_id)
    _known_readable[topic] = ledgers.last
    return sizes


def _sample(admin: PulsarAdmin, topic: str, ledgers: Ledgers) -> tuple[int, int]:
    """Return the fewest messages of an entry, and the largest size of a message, in a sample of the entries."""
    total = sum(count for _, count in ledgers)
    fewest, heaviest = [], [1]
    for nth in {1 + (total - 1) * part // (_SAMPLES - 1) for part in range(_SAMPLES)}:
        at = ledgers.number(nth)
        if at is not None:
            try:
                entry = admin.entry(topic, at.ledger_id, at.entry_id)
            except (AdminNotFound, AdminPrecondition):
                continue
            count = max(entry.message_count, 1)
            fewest.append(count)
            heaviest.append((entry.total_chunk_size or entry.uncompressed_size or 0) // count)
    return min(fewest, default=1), max(heaviest)


def batch_segments(settings: Settings) -> list[Segment]:
    """Plan a batch read: return a segment for each topic partition."""
    topics = topics_of(settings)
    check_topics_of_offsets(settings, topics)
    segments = []
    for topic, stats in stats_of(settings, topics).items():
        state = state_of(settings, topic, stats)
        begin = begin_of(settings, state, "earliest")
        segments.append(Segment.of(state, begin, _bound_of(settings, state, "ending", "latest")))
    return segments


def check_topics_of_offsets(settings: Settings, topics: list[str]) -> None:
    """Check that the topics named by offsets are read: a misspelt name would make reading start at another position."""
    awaited = settings["topics"] or (settings["topic"],)
    known = {str(name) for topic in topics for name in (topic, TopicName.parse(topic).parent)}
    known.update(str(TopicName.parse(name)) for name in awaited if name is not None)
    for option in ("startingOffsets", "startingTime", "endingOffsets", "endingTime"):
        for name in settings[option] if isinstance(settings[option], dict) else ():
            if str(TopicName.parse(name)) not in known:
                raise InvalidUse(
                    f"Option {option} names {name}, which is not read. The topics read are: {', '.join(topics)}."
                )


def _for_topic(value: T | dict[str, T], topic: str) -> T | None:
    """Return an option's value for one topic partition or else for its topic; None if it has no value for them."""
    if not isinstance(value, dict):
        return value
    by_name = {str(TopicName.parse(name)): one for name, one in value.items()}
    name = TopicName.parse(topic)
    return by_name.get(topic, by_name.get(str(name.parent)))


def begin_of(settings: Settings, state: TopicState, default: str) -> Offset:
    """Return the offset after which reading begins; `default` is "earliest" or "latest"."""
    begin = _bound_of(settings, state, "starting", default)
    if isinstance(_for_topic(settings["startingOffsets"], state.topic), Offset):
        begin = begin.just_before()
        report_data_loss(settings, find_loss(state, begin, None))
    return begin


def _bound_of(settings: Settings, state: TopicState, side: str, default: str) -> Offset:
    """Return the offset that an option of a side, "starting" or "ending", sets for a topic partition."""
    moment = _for_topic(settings[f"{side}Time"], state.topic)
    if moment is not None:
        return _at_time(admin_of(settings), state, moment)
    value = _for_topic(settings[f"{side}Offsets"], state.topic) or default
    if isinstance(value, Offset):
        return _at_message(admin_of(settings), state, value)
    return BEGINNING if value == "earliest" else state.end


def planned_segment(settings: Settings, topic: str, begin: Offset, until: Offset, subscription: str) -> Segment | None:
    """Return the segment of a planned batch in a topic partition; None if it is empty or no longer exists."""
    if begin == until:
        return None
    stats = stats_of(settings, [topic]).get(topic)
    if stats is None:
        what = f"{topic} was to be read up to {until}, but it was deleted"
        report_data_loss(settings, Loss(topic, until.last_entry, None, what))
        return None
    state = state_of(settings, topic, stats)
    report_data_loss(settings, find_loss(state, begin, stats.cursors.get(subscription), until))
    return Segment.of(state, begin, until)


def find_loss(state: TopicState, start: Offset, cursor: CursorInfo | None, until: Offset | None = None) -> Loss | None:
    """Return the loss if messages after `start` may have been trimmed unread; `until` is the end of a planned batch."""
    if state.compacted_entries is not None:
        return None  # compaction reads all entries before they may be trimmed, and keeps the last of each key
    first = state.first_ledger
    if until is not None and until.entry >= 0 and (first is None or until.ledger < first):
        what = f"was to be read up to {until}"
    elif lost_before(start, first, None if cursor is None else cursor.mark_delete_position):
        what = f"was to be read after {start}"
    else:
        return None
    return Loss(
        state.topic,
        start.last_entry,
        first,
        f"{state.topic} {what}, but its first ledger is now {first}: entries before it were trimmed, by expiry (TTL), "
        "by retention or by an operator",
    )


def _at_message(admin: PulsarAdmin, state: TopicState, offset: Offset) -> Offset:
    """Move a user's offset to the first chunk of its message, if that is chunked."""
    last = state.ledgers.last
    if offset.entry < 0 or offset.ledger < (state.first_ledger or 0):
        return offset
    if last is None or offset.last_entry > last:
        raise MessageIdNotFound(
            f"{offset} is beyond the end of {state.topic}, whose last entry is {last}.", position=offset.last_entry
        )
    if offset.batch >= 0:
        return offset
    try:
        return Offset.at(resolve_chunks(admin, state.topic, offset.last_entry).positions[0])
    except (IncompleteChunkedMessage, MessageIdUnresolved):
        raise
    except MessageIdNotFound:
        return offset  # the ledger ends before that entry


def _at_time(admin: PulsarAdmin, state: TopicState, moment: int) -> Offset:
    """Return the offset of the entries before the first one that was published at a time or later."""
    found = admin.message_id_by_time(state.topic, moment)
    if found.ledger_id < 0:
        return BEGINNING
    return min(Offset(found.ledger_id, found.entry_id).just_before(), state.end)
