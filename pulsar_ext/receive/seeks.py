"""Several topics: their partitions, the queue and the target of a seek of each (pure but for `partitions_of_each`)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

from pulsar_ext._runtime.context import ClientContext
from pulsar_ext.chunks.resolver import as_message_id
from pulsar_ext.errors import InvalidUse
from pulsar_ext.ids.message_id import MessageId
from pulsar_ext.ids.topic_name import TopicName

Topics = str | list[str] | re.Pattern[str]
"""The topic, the topics or the pattern of a subscription."""


_Target = TypeVar("_Target")
_MOST_QUEUED: Final = 50_000
"""Limit of prefetched messages of several topics together, the default of a consumer."""
_SCHEME = re.compile(r"^(?:non-)?persistent://")


def partitions_of_each(context: ClientContext, topics: Topics) -> list[str]:
    """Return the full names of the topics and partitions of a subscription; a pattern's come from the admin API."""
    if isinstance(topics, re.Pattern):
        namespace, is_persistent = _namespace_of(topics)
        names = matching(topics, context.admin_api().topics(namespace, is_persistent=is_persistent))
    else:
        names = [topics] if isinstance(topics, str) else topics
    found: dict[str, None] = {}
    for name in names:
        full = str(TopicName.parse(name))
        for partition in context.opener.get_topic_partitions(full):
            found[str(TopicName.parse(partition))] = None
    return list(found)


def queue_of_each(size: int, topics: int) -> int:
    """Return the queue size of each of several readers; together they prefetch as a consumer of several topics."""
    return max(1, min(size, _MOST_QUEUED // max(topics, 1)))


def matching(pattern: re.Pattern[str], names: Iterable[str]) -> list[str]:
    """Return the topics that a pattern matches completely, without their schemes, as Java and the C++ client do.

    A partitioned topic is matched by its own name.
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


def target_of_each(target: object, topics: Iterable[str]) -> dict[str, object]:
    """Return the target of each topic or partition to be moved: an id, a time in milliseconds, or a dict of these.

    Raise `InvalidUse` if a topic is not among these, or has two targets, or if the partition of an id is unknown.
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


def targets_by_topic(targets: Mapping[str, _Target], topics: Iterable[str]) -> dict[str, _Target]:
    """Return the target of each topic or partition that a dict names; raises as `target_of_each()`."""
    topics = list(topics)
    found: dict[str, _Target] = {}
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


def is_on_any_topic(target: object) -> bool:
    """Return whether a target exists on every topic: a time, the earliest message or the latest."""
    if isinstance(target, int):
        return True
    return as_message_id(target) in (MessageId.earliest, MessageId.latest)


def _partition_of(target: object, name: TopicName, named: list[str]) -> str:
    if len(named) == 1:
        return named[0]
    index = as_message_id(target).partition()
    partition = str(name.partition(index)) if index >= 0 else ""
    if partition not in named:
        raise InvalidUse(
            f"{target!r} does not identify one of the {len(named)} partitions of {name}. Nothing was moved."
        )
    return partition
