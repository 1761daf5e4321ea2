"""What requests and replies say in their properties (pure), so that a client in any language can be either side."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from pulsar_ext.errors import InvalidUse, RequestFailed
from pulsar_ext.ids.topic_name import TopicName

if TYPE_CHECKING:
    from collections.abc import Mapping


CORRELATION: Final = "CORRELATION_ID"
REPLY_TOPIC: Final = "REPLY_TOPIC"
REPLIER: Final = "REPLIER"
INDEX: Final = "REPLY_INDEX"
COUNT: Final = "REPLY_COUNT"
ERROR: Final = "REPLY_ERROR"

_NUMBER: Final = re.compile("[0-9]{1,18}")


def request_properties(given: Mapping[str, str] | None, correlation_id: str, reply_topic: str) -> dict[str, str]:
    """Give the properties of a request.

    Args:
        given: the application's.
        correlation_id: what the replies to it have in common.
        reply_topic: where they go.

    Raises:
        InvalidUse: the application's say one of these.
    """
    ours = {CORRELATION: correlation_id, REPLY_TOPIC: reply_topic}
    if given and not given.keys().isdisjoint(ours):
        raise InvalidUse(f"The properties {', '.join(ours)} of a request are the requester's own. Nothing was sent.")
    return {**(given or {}), **ours}


@dataclass(frozen=True, slots=True)
class Reply:
    """What a reply says.

    Args:
        correlation_id: of its request.
        replier: who sent it: all processes of one replier have the same name.
        index: its place among this replier's replies, from 0; None if it is none, but only ends them.
        count: how many replies of this replier there are, if it is the last thing that it says.
        error: why there are no more.
    """

    correlation_id: str
    replier: str = ""
    index: int | None = 0
    count: int | None = 1
    error: str | None = None

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> Self | None:
        """Read the properties of a message; None if it is no reply. With a correlation id alone it is the only one."""
        correlation_id = properties.get(CORRELATION)
        if correlation_id is None:
            return None
        replier, error = properties.get(REPLIER, ""), properties.get(ERROR)
        index, count = properties.get(INDEX), properties.get(COUNT)
        if error is None and index is None and count is None:
            return cls(correlation_id, replier)
        if not all(one is None or _NUMBER.fullmatch(one) for one in (index, count)):
            return None
        place, places = (None if one is None else int(one) for one in (index, count))
        return cls(correlation_id, replier, place, places, error)


class Answer:
    """What one replier says to one request, message by message: the properties of each.

    Args:
        topic: where the replies go.
        correlation_id: of the request.
        replier: the replier's name.
    """

    def __init__(self, topic: str, correlation_id: str, replier: str) -> None:
        self.topic = topic
        self._common = {CORRELATION: correlation_id, REPLIER: replier}
        self._count = 0

    @classmethod
    def to(cls, properties: Mapping[str, str], replier: str) -> Self | None:
        """Begin the answer to a request with these properties; None if it wants none."""
        topic, correlation_id = properties.get(REPLY_TOPIC), properties.get(CORRELATION)
        return cls(topic, correlation_id, replier) if topic and correlation_id is not None else None

    def only(self) -> dict[str, str]:
        """Say that the next reply is the only one."""
        return {**self._common, INDEX: "0", COUNT: "1"}

    def next(self) -> dict[str, str]:
        """Say that there may be more."""
        self._count += 1
        return {**self._common, INDEX: str(self._count - 1)}

    def end(self) -> dict[str, str]:
        """Say how many there were."""
        return {**self._common, COUNT: str(self._count)}

    def failed(self, error: BaseException) -> dict[str, str]:
        """Say why there are no more: the text of a `RequestFailed`, and of any other error what it is called.

        What else it says may not be meant for whoever asks.
        """
        known = isinstance(error, RequestFailed)
        return {**self._common, ERROR: str(error) if known else f"The replier's handler raised {type(error).__name__}."}


def in_same_namespace(request_topic: str, reply_topic: Any) -> bool:
    """Whether a reply topic is in the request topic's namespace: a request may have nothing written elsewhere."""
    try:
        asked, replied = TopicName.parse(request_topic), TopicName.parse(reply_topic)
    except InvalidUse:
        return False
    return (asked.tenant, asked.namespace) == (replied.tenant, replied.namespace)
