"""Message properties of requests and replies (pure), so that a client in any language can be either side."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from pulsar_ext.errors import InvalidUse, RequestFailed
from pulsar_ext.ids.topic_name import TopicName

CORRELATION: Final = "CORRELATION_ID"
REPLY_TOPIC: Final = "REPLY_TOPIC"
REPLIER: Final = "REPLIER"
INDEX: Final = "REPLY_INDEX"
COUNT: Final = "REPLY_COUNT"
ERROR: Final = "REPLY_ERROR"

_NUMBER: Final = re.compile("[0-9]{1,18}")


def request_properties(given: Mapping[str, str] | None, correlation_id: str, reply_topic: str) -> dict[str, str]:
    """Return the properties of a request."""
    ours = {CORRELATION: correlation_id, REPLY_TOPIC: reply_topic}
    if given and not given.keys().isdisjoint(ours):
        raise InvalidUse(f"A requester sets the properties {', '.join(ours)} of a request itself. Nothing was sent.")
    return {**(given or {}), **ours}


@dataclass(frozen=True, slots=True)
class Reply:
    """The properties of a reply."""

    correlation_id: str
    replier: str = ""
    """The replier's name, which all processes of one replier share."""
    index: int | None = 0
    """The index among this replier's replies; None if it only ends the replies."""
    count: int | None = 1
    """The number of this replier's replies, in its last message."""
    error: str | None = None

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> Self | None:
        """Read the properties of a message; None if it is not a reply. A correlation id alone marks a single reply."""
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
    """The messages of one replier to one request: the properties of each."""

    def __init__(self, topic: str, correlation_id: str, replier: str) -> None:
        self.topic = topic
        self._common = {CORRELATION: correlation_id, REPLIER: replier}
        self._count = 0

    @classmethod
    def to(cls, properties: Mapping[str, str], replier: str) -> Self | None:
        """Begin the answer to a request with these properties; None if the request wants no replies."""
        topic, correlation_id = properties.get(REPLY_TOPIC), properties.get(CORRELATION)
        return cls(topic, correlation_id, replier) if topic and correlation_id is not None else None

    def only(self) -> dict[str, str]:
        """Return the properties of a single reply."""
        return {**self._common, INDEX: "0", COUNT: "1"}

    def next(self) -> dict[str, str]:
        """Return the properties of the next of several replies."""
        self._count += 1
        return {**self._common, INDEX: str(self._count - 1)}

    def end(self) -> dict[str, str]:
        """Return the properties of the message that ends the replies with their number."""
        return {**self._common, COUNT: str(self._count)}

    def failed(self, error: BaseException) -> dict[str, str]:
        """Return the properties of an error that ends the replies; only `RequestFailed` has no confidential text."""
        known = isinstance(error, RequestFailed)
        return {**self._common, ERROR: str(error) if known else f"The replier's handler raised {type(error).__name__}."}


def in_same_namespace(request_topic: str, reply_topic: str) -> bool:
    """Return whether a reply topic is in the request topic's namespace, as a request must not write elsewhere."""
    try:
        asked, replied = TopicName.parse(request_topic), TopicName.parse(reply_topic)
    except InvalidUse:
        return False
    return (asked.tenant, asked.namespace) == (replied.tenant, replied.namespace)
