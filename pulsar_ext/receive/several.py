"""Several topics: which partitions there are, and where each of them is to go (pure but for `partitions_of_each`)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pulsar_ext.chunks.resolver import as_message_id
from pulsar_ext.errors import InvalidUse
from pulsar_ext.ids.message_id import MessageId
from pulsar_ext.ids.topic_name import TopicName

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pulsar_ext._runtime.context import ClientContext

__all__ = ["is_end", "matching", "partitions_of_each", "target_of_each", "targets_by_topic"]

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
