"""Every error that pulsar_ext raises, in one tree.

The root is also a `pulsar.PulsarException`, so an `except` clause written for the official client catches these too.
Each error carries what it knows as attributes, survives pickling (Spark and multiprocessing ship exceptions between
processes), and says by `retriable` whether the same call may succeed later without any change::

    pulsar.PulsarException
    └── PulsarExtError
        ├── InvalidMessageId           (also ValueError)   the id or its bytes or text cannot be a message id
        ├── MessageIdNotFound                              the topic does not hold the message that the id names
        │   └── IncompleteChunkedMessage                   some chunks of it are gone, so no client can assemble it
        ├── MessageIdUnresolved        (retriable)         it could not be found out what the id stands for
        ├── TopicRequired              (also ValueError)   the id does not say which topic of several it belongs to
        ├── InvalidUse                 (also ValueError)   an argument or a call that would lose or strand messages
        ├── NotOpen                                        the object was never opened by a Client, or was closed
        ├── ForkedClientError                              the object was inherited across a fork
        ├── ProducerWindowFull         (retriable)         the window of pending messages is full
        ├── AdminError                                     the admin REST API refused or failed
        │   ├── AdminUnavailable       (retriable)         no answer: refused, unreachable, timed out, 502 to 504
        │   ├── AdminUnauthorized                          401 or 403
        │   ├── AdminNotFound                              404: no such tenant, namespace, topic, subscription, entry
        │   ├── AdminConflict                              409: exists already, or is in use
        │   ├── AdminPrecondition                          412: the broker lacks a setting this call needs
        │   └── AdminNotAllowed                            405: not on this kind of topic, such as a partitioned parent
        └── BrokerStartError                               the test harness could not bring up a broker
"""

from __future__ import annotations

from typing import Any, ClassVar

from pulsar import PulsarException

__all__ = [
    "AdminConflict",
    "AdminError",
    "AdminNotAllowed",
    "AdminNotFound",
    "AdminPrecondition",
    "AdminUnauthorized",
    "AdminUnavailable",
    "BrokerStartError",
    "ForkedClientError",
    "IncompleteChunkedMessage",
    "InvalidMessageId",
    "InvalidUse",
    "MessageIdNotFound",
    "MessageIdUnresolved",
    "NotOpen",
    "ProducerWindowFull",
    "PulsarExtError",
    "TopicRequired",
]


class PulsarExtError(PulsarException):  # type: ignore[misc]  # the official client ships no types
    """Root of the tree; `details` become attributes and survive pickling.

    Args:
        message: what was found, what was tried, what to do next.
        **details: typed facts about the failure, readable as attributes.
    """

    retriable: ClassVar[bool] = False

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details = details
        for name, value in details.items():
            setattr(self, name, value)

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.details)


def _rebuild(cls: type[PulsarExtError], message: str, details: dict[str, Any]) -> PulsarExtError:
    return cls(message, **details)


class InvalidMessageId(PulsarExtError, ValueError):
    """The given bytes, text or numbers cannot be a message id."""


class MessageIdNotFound(PulsarExtError):
    """The topic does not hold the message that the id names: trimmed, deleted, or beyond its end."""


class IncompleteChunkedMessage(MessageIdNotFound):
    """Some chunks of the message are not on the topic, so no client can assemble it."""


class MessageIdUnresolved(PulsarExtError):
    """It could not be found out what the id stands for; nothing was changed."""

    retriable = True


class TopicRequired(PulsarExtError, ValueError):
    """The consumer reads several topics and the id does not say which one it belongs to."""


class InvalidUse(PulsarExtError, ValueError):
    """An argument or a call that would lose or strand messages, refused before anything was changed."""


class NotOpen(PulsarExtError):
    """The object was never opened by a `Client`, or has been closed."""


class ForkedClientError(PulsarExtError):
    """The object was inherited across a fork, where the official client's threads do not exist."""


class ProducerWindowFull(PulsarExtError):
    """As many messages are pending as `max_pending_messages` allows."""

    retriable = True


class AdminError(PulsarExtError):
    """The admin REST API refused the request or failed; `status` and `reason` are the broker's own."""


class AdminUnavailable(AdminError):
    """No usable answer: connection refused, unreachable, timed out, or a 502, 503 or 504."""

    retriable = True


class AdminUnauthorized(AdminError):
    """401 or 403: no credentials, wrong credentials, or not permitted."""


class AdminNotFound(AdminError):
    """404: no such tenant, namespace, topic, subscription or entry."""


class AdminConflict(AdminError):
    """409: it exists already, or is in use."""


class AdminPrecondition(AdminError):
    """412: the broker or the topic lacks what this call needs."""


class AdminNotAllowed(AdminError):
    """405: the call does not apply to this kind of topic."""


class BrokerStartError(PulsarExtError):
    """The test harness could not bring up a broker; the message ends with the tail of its log."""
