"""Policies of one topic.

Mirrors `org.apache.pulsar.client.admin.TopicPolicies`; each docstring names the REST path below `/admin/v2/`, where `T`
stands for `persistent/{tenant}/{namespace}/{topic}`. The broker takes a policy on a moment after it has answered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._checks import MAX_INT, persistent, whole_number
from ._core import Request, Session, optional, set_policy

if TYPE_CHECKING:
    from ._topics import Topic


async def max_message_size(session: Session, topic: Topic) -> int | None:
    """Get above how many bytes the topic takes no message, None if not set: `GET T/maxMessageSize`."""
    path = f"{persistent(topic, 'max_message_size').rest_path}/maxMessageSize"
    return await session.send(Request("GET", path, optional(int)))


async def set_max_message_size(session: Session, topic: Topic, size: int | None) -> None:
    """Set above how many bytes the topic takes no message; None removes it: `POST` or `DELETE T/maxMessageSize`.

    A C++ client, and so a Python one, does not hear why such a message is refused: its connection ends, and it sends
    the message again. `send()` raises `Timeout` after `send_timeout_millis`.
    """
    value = None if size is None else whole_number("size", size, most=MAX_INT)
    await set_policy(session, f"{persistent(topic, 'set_max_message_size').rest_path}/maxMessageSize", value)
