"""Which topics a subscriber is for: one, several or a pattern, and a router's prefix in front."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from faststream.exceptions import SetupError

from pulsar_ext.ids.topic_name import TopicName

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Topics", "full_topic", "same_topic"]


@dataclass(frozen=True, slots=True)
class Topics:
    """As they were declared.

    Args:
        declared: a name, several of them, or a pattern.

    Raises:
        SetupError: it is none of these.
    """

    declared: str | Sequence[str] | re.Pattern[str]

    def __post_init__(self) -> None:
        several = isinstance(self.declared, list | tuple) and all(isinstance(one, str) for one in self.declared)
        if not self.declared or not (several or isinstance(self.declared, str | re.Pattern)):
            raise SetupError(
                "A subscriber takes a topic's name, a list of names, or a pattern of `re.compile`, "
                f"not {self.declared!r}."
            )

    @property
    def is_pattern(self) -> bool:
        """Whether it is a pattern."""
        return isinstance(self.declared, re.Pattern)

    def behind(self, prefix: str) -> str | list[str] | re.Pattern[str]:
        """Give what a consumer subscribes to, with a prefix in front of each name."""
        if isinstance(self.declared, str):
            return prefix + self.declared
        if isinstance(self.declared, re.Pattern):
            namespace, slash, name = prefix.rpartition("/")  # the namespace is no pattern, and the name is text
            name = re.sub(r"[^\w-]", r"\\\g<0>", name)
            pattern = self.declared.pattern
            if prefix and "|" in pattern:
                pattern = f"(?:{pattern})"  # the prefix is in front of each branch
            return re.compile(f"{namespace}{slash}{name}{pattern}", self.declared.flags)
        return [prefix + one for one in self.declared]

    def each(self, prefix: str) -> list[str]:
        """Return each name, or the text of the pattern."""
        topics = self.behind(prefix)
        if isinstance(topics, re.Pattern):
            return [topics.pattern]
        return [topics] if isinstance(topics, str) else topics

    def shown(self, prefix: str) -> str:
        """Give all of them as one text, for logs."""
        return ",".join(self.each(prefix))

    def include(self, topic: str, prefix: str) -> bool:
        """Whether a topic is one of them."""
        topics = self.behind(prefix)
        if isinstance(topics, re.Pattern):
            full = str(TopicName.parse(topic))
            names = (full, full.partition("://")[2])  # a pattern may leave out the domain
            return any(topics.fullmatch(name) for name in names)
        return any(same_topic(topic, one) for one in ([topics] if isinstance(topics, str) else topics))


def full_topic(topic: str) -> str:
    """Return the full name of a topic; of none none, which a publish raises for."""
    return str(TopicName.parse(topic)) if topic else topic


def same_topic(one: str, other: str) -> bool:
    """Whether two names, short or full, are of one topic."""
    return TopicName.parse(one) == TopicName.parse(other)
