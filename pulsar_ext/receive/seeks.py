"""Seeks of consumers and readers, and the ends of their topics.

For several topics: the partitions, and the target of each (pure but for `partitions_of_each`).
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


class Seekable:
    """The methods of a consumer and a reader that change or query positions."""

    inner: Any
    _context: ClientContext
    _order: ReceiveOrder
    _topics: Any

    def seek(self, messageid: Any) -> None:
        """Move to a message, or to a publish time in milliseconds.

        Any id of a chunked message stands for its first chunk. With `start_message_id_inclusive=True` the target is the
        next message to be received, otherwise the one after it, as in Java. The broker searches for a time as if
        publish times increased along the topic: if producers' clocks differ, later messages may precede the target.

        A consumer of several topics or partitions also accepts a dict of an id or a time by topic. Only these topics
        are moved; on the others, unacknowledged messages are redelivered.

        Raises:
            IncompleteChunkedMessage: chunks of the message were trimmed, so it cannot be delivered any more.
            MessageIdNotFound: an id rebuilt from numbers is beyond the end of the topic.
            InvalidUse: the target is neither an id nor an int.
        """
        self._context.callbacks.raise_inside("seek")
        if isinstance(messageid, Mapping):
            self._seek_each(messageid)
            return
        target = seek_target(self._context.resolver, self._topics, messageid)
        with self._order.run_transition(Transition.SEEK, lambda: self._begin_seek(None)):
            reopener = self._order.reopener
            (self.inner.seek if reopener is None else reopener.move)(target)

    def _seek_each(self, targets: Mapping[Any, Any]) -> None:
        """Move on some of several topics and partitions."""
        self._raise_if_closed()
        topics = self._topics_read()
        found = targets_by_topic(targets, topics)
        if not found:
            return
        if isinstance(self._topics, str) and topics == [str(TopicName.parse(self._topics))]:
            self.seek(found[topics[0]])
            return
        resolver = self._context.resolver
        resolved = {topic: seek_target(resolver, topic, target) for topic, target in found.items()}
        with self._order.run_transition(Transition.SEEK, lambda: self._begin_seek(resolved)):
            self._order.reopener.seek_each(resolved)

    def _begin_seek(self, targets: Mapping[str, Any] | None) -> None:
        """Note which of several topics the seek moves; None for all."""
        self._raise_if_closed()
        reopener = self._order.reopener
        if reopener is not None:
            reopener.note_moved_topics(targets)
        elif targets is not None:
            raise closed_error(type(self).__name__)

    def get_last_message_ids(self) -> list[MessageId]:
        """Return the id of the last message of each topic and partition; mirrors Java's `Consumer.getLastMessageIds`.

        Each id knows its topic. On an empty topic the entry is -1; for a chunked message it is the last chunk's, as
        plain numbers. The ids come from the admin API.

        Raises:
            AdminError: the admin API rejected the request, or did not answer.
        """
        self._context.callbacks.raise_inside("get_last_message_ids")
        self._raise_if_closed()
        admin = self._context.admin_api()
        return [admin.last_message_id(topic) for topic in self._topics_read()]

    def has_reached_end_of_topic(self) -> bool:
        """Return whether every topic was terminated and completely consumed.

        A consumer has consumed what its subscription has acknowledged: call `flush_acks()` first. Mirrors Java's
        `Consumer.hasReachedEndOfTopic`. The C++ client does not expose it, so the admin API is queried.

        Raises:
            AdminError: the admin API rejected the request, or did not answer; a topic that is not persistent cannot be
                terminated.
        """
        self._context.callbacks.raise_inside("has_reached_end_of_topic")
        self._raise_if_closed()
        admin = self._context.admin_api()
        stats = [admin.internal_stats(topic) for topic in self._topics_read()]
        return bool(stats) and all(one.state == "Terminated" for one in stats) and self._has_consumed_all(stats)

    def _has_consumed_all(self, stats: list[InternalStats], /) -> bool:
        """Return whether everything on the topics was consumed."""
        subscription = self.inner.subscription_name()
        cursors = [(one, one.cursors.get(subscription)) for one in stats]
        return all(
            cursor is not None and cursor.mark_delete_position >= one.last_confirmed_entry for one, cursor in cursors
        )

    def _topics_read(self) -> list[str]:
        """Return the full names of all topics and partitions."""
        return partitions_of_each(self._context, self._topics)

    def _raise_if_closed(self) -> None:
        """Raise if this is closed."""
        raise NotImplementedError


_SCHEME = re.compile(r"^(?:non-)?persistent://")


def partitions_of_each(context: ClientContext, topics: Any) -> list[str]:
    """Return the full names of the topics and partitions of a subscription.

    Args:
        context: the context of the client.
        topics: a topic, a list of topics, or a pattern, for which the admin API is queried.

    Raises:
        AdminError: the topics of a pattern cannot be listed.
        InvalidUse: a name is invalid, or a pattern has no namespace.
        pulsar.PulsarException: the broker did not return the partitions.
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
    """Return the topics that a pattern matches completely, without their schemes, as Java and the C++ client do.

    Args:
        pattern: the pattern; a partitioned topic is matched by its own name.
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
    """Return the target of each topic or partition that is to be moved.

    Args:
        target: a message id, a time in milliseconds, or a dict of these by topic.
        topics: the full names of all topics and partitions.

    Raises:
        InvalidUse: a topic is not among these, or has two targets; or the partition of an id is unknown.
        InvalidMessageId: a target is neither an id nor a time.
    """
    topics = list(topics)
    if isinstance(target, Mapping):
        return targets_by_topic(target, topics)
    if is_on_any_topic(target) or len(topics) == 1:
        return dict.fromkeys(topics, target)
    topic = as_message_id(target).topic_name()
    if topic is None:
        raise InvalidUse(
            f"The topic of {target!r} is unknown, and several topics are read: use seek({{topic: id}}), or set the "
            "topic of the id with MessageId.deserialize(data, topic=…)."
        )
    return targets_by_topic({topic: target}, topics)


def targets_by_topic(targets: Mapping[Any, Any], topics: Iterable[str]) -> dict[str, Any]:
    """Return the target of each topic or partition that a dict names; raises as `target_of_each()`."""
    topics = list(topics)
    found: dict[str, Any] = {}
    for key, target in targets.items():
        name = TopicName.parse(key)
        named = [topic for topic in topics if TopicName.parse(topic) == name]
        named = named or [topic for topic in topics if TopicName.parse(topic).parent == name]
        if not named:
            raise InvalidUse(f"{name} is not among the topics that are read: {', '.join(topics)}. Nothing was moved.")
        if not is_on_any_topic(target):
            named = [_partition_of(target, name, named)]
        for topic in named:
            if topic in found:
                raise InvalidUse(f"{topic} has two targets, by its own name and its topic's. Nothing was moved.")
            found[topic] = target
    return found


def is_on_any_topic(target: Any) -> bool:
    """Return whether a target exists on every topic: a time, the earliest message or the latest."""
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
            f"{target!r} does not identify one of the {len(named)} partitions of {name}. Nothing was moved."
        )
    return partition
