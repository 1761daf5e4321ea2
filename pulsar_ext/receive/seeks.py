"""Moving consumers and readers to other places of their topics, and asking where these end.

Of several topics: which partitions there are, and where each of them is to go (pure but for `partitions_of_each`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pulsar_ext._native.fork import closed_error
from pulsar_ext.chunks.resolver import as_message_id, seek_target
from pulsar_ext.errors import InvalidUse
from pulsar_ext.ids.message_id import MessageId
from pulsar_ext.ids.topic_name import TopicName

from .order import ReceiveOrder, Transition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pulsar_ext._runtime.context import ClientContext
    from pulsar_ext.admin import InternalStats


class Moving:
    """What a consumer and a reader do with places."""

    inner: Any
    _context: ClientContext
    _order: ReceiveOrder
    _topics: Any

    def seek(self, messageid: Any) -> None:
        """Move to a message, or to a publish time in milliseconds.

        A chunked message is reached at its first chunk, by whatever id. With `start_message_id_inclusive=True` it is
        the next one to come, otherwise the one after it is, as with Java's. The broker looks for a time as if publish
        times went up along the topic: where producers' clocks differ, later messages may lie before the place found.

        A consumer of several topics or partitions also takes a dict that has an id or a time by topic, and moves on
        these only; of the others comes again what was not acknowledged.

        Raises:
            IncompleteChunkedMessage: the message cannot be delivered any more: chunks of it were trimmed.
            MessageIdNotFound: an id rebuilt from numbers is beyond the end of the topic.
            InvalidUse: it is neither an id nor an int.
        """
        self._context.callbacks.refuse("seek")
        if isinstance(messageid, Mapping):
            self._seek_each(messageid)
            return
        target = seek_target(self._context.resolver, self._topics, messageid)
        with self._order.passing(Transition.SEEK, lambda: self._begin_moving(None)):
            foundation = self._order.foundation
            (self.inner.seek if foundation is None else foundation.move)(target)

    def _seek_each(self, targets: Mapping[Any, Any]) -> None:
        """Move on some of several topics and partitions."""
        self._refuse_closed()
        topics = self._topics_read()
        found = targets_by_topic(targets, topics)
        if not found:
            return
        if isinstance(self._topics, str) and topics == [str(TopicName.parse(self._topics))]:
            self.seek(found[topics[0]])
            return
        resolver = self._context.resolver
        resolved = {topic: seek_target(resolver, topic, target) for topic, target in found.items()}
        with self._order.passing(Transition.SEEK, lambda: self._begin_moving(resolved)):
            self._order.foundation.move_each(resolved)

    def _begin_moving(self, targets: Mapping[str, Any] | None) -> None:
        """Have everybody know which of several topics the seek moves that is about to begin; None for all."""
        self._refuse_closed()
        foundation = self._order.foundation
        if foundation is not None:
            foundation.moves_some(targets)
        elif targets is not None:
            raise closed_error(type(self).__name__)

    def get_last_message_ids(self) -> list[MessageId]:
        """Give the id of the last message of each topic and partition; mirrors Java's `Consumer.getLastMessageIds`.

        Each knows its topic. Where there is no message, its entry is -1; of a chunked message it is the last chunk's,
        as bare numbers. The admin API is asked.

        Raises:
            AdminError: the admin API refused, or did not answer.
        """
        self._context.callbacks.refuse("get_last_message_ids")
        self._refuse_closed()
        admin = self._context.admin_api()
        return [admin.last_message_id(topic) for topic in self._topics_read()]

    def has_reached_end_of_topic(self) -> bool:
        """Tell whether there is nothing more to come, as the topic was terminated, and it has had everything.

        A consumer has had what its subscription has acknowledged: send acknowledgements first, with `flush_acks()`. Of
        several topics and partitions it holds for all. Mirrors Java's `Consumer.hasReachedEndOfTopic`; the broker tells
        the C++ client, which tells nobody, so the admin API is asked.

        Raises:
            AdminError: the admin API refused, or did not answer; a topic that is not persistent cannot be terminated.
        """
        self._context.callbacks.refuse("has_reached_end_of_topic")
        self._refuse_closed()
        admin = self._context.admin_api()
        stats = [admin.internal_stats(topic) for topic in self._topics_read()]
        return bool(stats) and all(one.state == "Terminated" for one in stats) and self._has_had_all(stats)

    def _has_had_all(self, stats: list[InternalStats], /) -> bool:
        """Whether everything on topics was consumed."""
        subscription = self.inner.subscription_name()
        cursors = [(one, one.cursors.get(subscription)) for one in stats]
        return all(
            cursor is not None and cursor.mark_delete_position >= one.last_confirmed_entry for one, cursor in cursors
        )

    def _topics_read(self) -> list[str]:
        """Give the full names of all topics and partitions."""
        return partitions_of_each(self._context, self._topics)

    def _refuse_closed(self) -> None:
        """Refuse a use behind a close."""
        raise NotImplementedError


_SCHEME = re.compile(r"^(?:non-)?persistent://")


def partitions_of_each(context: ClientContext, topics: Any) -> list[str]:
    """Give the full names of the topics and partitions that something reads.

    Args:
        context: of the client.
        topics: a topic, a list of them, or a pattern, for which the admin API is asked.

    Raises:
        AdminError: the topics of a pattern cannot be listed.
        InvalidUse: a name is none, or a pattern names no namespace.
        pulsar.PulsarException: the broker cannot be asked for partitions.
    """
    names: Iterable[Any] = [topics] if isinstance(topics, str) else topics
    if isinstance(topics, re.Pattern):
        namespace, is_persistent = _namespace_of(topics)
        names = matching(topics, context.admin_api().topics(namespace, is_persistent=is_persistent))
    found: dict[str, None] = {}
    for name in names:
        full = str(TopicName.parse(name))
        for partition in context.opener.get_topic_partitions(full):
            found[str(TopicName.parse(partition))] = None
    return list(found)


def matching(pattern: re.Pattern[str], names: Iterable[str]) -> list[str]:
    """Give the topics that a pattern matches as a whole, as Java's and the C++ client's: neither has its scheme.

    Args:
        pattern: what is asked for; a partitioned topic is matched by its own name.
        names: full names of topics and of partitions.
    """
    plain = re.compile(_SCHEME.sub("", pattern.pattern), pattern.flags)
    found = {str(TopicName.parse(name).parent): None for name in names}
    return [name for name in found if plain.fullmatch(_SCHEME.sub("", name))]


def _namespace_of(pattern: re.Pattern[str]) -> tuple[str, bool]:
    parts = _SCHEME.sub("", pattern.pattern).split("/")
    if len(parts) < 3:  # noqa: PLR2004  # tenant, namespace, name
        raise InvalidUse(
            f"The pattern {pattern.pattern!r} does not name a tenant and a namespace: expected "
            "'persistent://tenant/namespace/pattern'."
        )
    return f"{parts[0]}/{parts[1]}", not pattern.pattern.startswith("non-")


def target_of_each(target: Any, topics: Iterable[str]) -> dict[str, Any]:
    """Give where each topic or partition is to go that is to move.

    Args:
        target: a message id, a time in milliseconds, or a dict that has one of these by topic.
        topics: the full names of all topics and partitions.

    Raises:
        InvalidUse: a topic is none of these, or has two targets; an id does not say of which partition it is.
        InvalidMessageId: a target is neither an id nor a time.
    """
    topics = list(topics)
    if isinstance(target, Mapping):
        return targets_by_topic(target, topics)
    if is_end(target) or len(topics) == 1:
        return dict.fromkeys(topics, target)
    topic = as_message_id(target).topic_name()
    if topic is None:
        raise InvalidUse(
            f"{target!r} does not say which topic it is of, and several are read: seek({{topic: id}}), or give the id "
            "its topic with MessageId.deserialize(data, topic=…)."
        )
    return targets_by_topic({topic: target}, topics)


def targets_by_topic(targets: Mapping[Any, Any], topics: Iterable[str]) -> dict[str, Any]:
    """Give where each topic or partition is to go, of those that a dict names; raises as `target_of_each()`."""
    topics = list(topics)
    found: dict[str, Any] = {}
    for key, target in targets.items():
        name = TopicName.parse(key)
        named = [topic for topic in topics if TopicName.parse(topic) == name]
        named = named or [topic for topic in topics if TopicName.parse(topic).parent == name]
        if not named:
            raise InvalidUse(f"{name} is not among the topics that are read: {', '.join(topics)}. Nothing has moved.")
        if not is_end(target):
            named = [_partition_of(target, name, named)]
        for topic in named:
            if topic in found:
                raise InvalidUse(f"{topic} has two targets, by its own name and its topic's. Nothing has moved.")
            found[topic] = target
    return found


def is_end(target: Any) -> bool:
    """Whether a target is there on every topic: a time, the earliest message or the latest."""
    if isinstance(target, int):
        return True
    return as_message_id(target) in (MessageId.earliest, MessageId.latest)


def _partition_of(target: Any, name: TopicName, named: list[str]) -> str:
    if len(named) == 1:
        return named[0]
    index = as_message_id(target).partition()
    partition = str(name.partition(index)) if index >= 0 else ""
    if partition not in named:
        raise InvalidUse(
            f"{target!r} does not say which of the {len(named)} partitions of {name} it is of. Nothing has moved."
        )
    return partition
