"""The errors of pulsar_ext, in one tree.

The root is a `pulsar.PulsarException`, so `except` clauses written for the official client catch these errors too. Each
error has its facts as attributes, can be pickled (Spark and multiprocessing send exceptions between processes), and
states by `retriable` whether the same call may succeed later without any change::

    pulsar.PulsarException
    └── PulsarExtError
        ├── InvalidMessageId           (also ValueError)   the bytes, text or fields are not a message id
        ├── MessageIdNotFound                              the topic does not have the message of the id
        │   └── IncompleteChunkedMessage                   some chunks are missing, so no client can assemble it
        ├── MessageIdUnresolved        (retriable)         the id could not be resolved
        ├── TopicRequired              (also ValueError)   the id does not name its topic, and the consumer has several
        ├── InvalidUse                 (also ValueError)   an argument or a call that would lose or strand messages
        │   ├── AdminRequired                              the admin API is needed and not configured
        │   ├── InvalidTopic           (also InvalidTopicName) the topic name is invalid, or of an unsupported kind
        │   ├── InvalidKeyHashRange                        a key hash range, or a set of them, is invalid
        │   ├── MissingExtra           (also ModuleNotFoundError) a package is missing; the message names its extra
        │   └── SequenceIdRejected                         it is invalid, too low, or set for some messages only
        ├── NotOpen                                        the object was never opened by a Client, or was closed
        ├── ForkedClientError                              the object was inherited across a fork
        ├── DuplicateMessage                               the topic already has the message
        ├── DeduplicationDisabled                          the broker does not deduplicate the topic
        ├── ProducerForgotten                              the broker has forgotten a producer name's last sequence id
        ├── ProducerBroken                                 it is unknown whether a message in flight was persisted
        ├── SkipInsideMessage                              a skip would end inside a batch or a chunked message
        ├── CursorMoved                (retriable)         the cursor moved between the plan of a skip and its execution
        ├── SkipUnconfirmed                                the cursor does not show a requested skip
        ├── SubscriptionBusy (retriable, also ConsumerBusy) connected consumers keep another one from joining
        ├── NoSuchTopic                (also TopicNotFound) a reader of key ranges does not create a topic
        ├── SlotsNotCovered            (retriable)         a Key_Shared subscription has slots that no consumer covers
        ├── SchemaMismatch        (also IncompatibleSchema) a schema or a value does not match the topic's schema
        ├── MisroutedMessage                               a consumer received a message whose slot is not in its ranges
        ├── NoReply                    (also Timeout)      a request was not answered in time, or not completely
        ├── RequestFailed                                  the replier reported a failure
        ├── AckNotConfirmed            (retriable)         the subscription's cursor does not show acknowledgements
        ├── AdminError                                     the admin REST API rejected the request, or failed
        │   ├── AdminUnavailable       (retriable)         no answer: unreachable, timed out, 502 to 504
        │   ├── AdminUnauthorized                          401 or 403
        │   ├── AdminNotFound                              404: no such tenant, namespace, topic, subscription, entry
        │   ├── AdminConflict                              409: already exists, or in use
        │   ├── AdminPrecondition                          412: the broker lacks a setting that this call needs
        │   └── AdminNotAllowed                            405: not for this kind of topic, such as a partitioned topic
        └── BrokerStartError                               the test harness could not start a broker
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from pulsar import (
    ConsumerBusy,
    IncompatibleSchema,
    InvalidTopicName,
    OperationNotSupported,
    PulsarException,
    Timeout,
    TopicNotFound,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "AckNotConfirmed",
    "AdminConflict",
    "AdminError",
    "AdminNotAllowed",
    "AdminNotFound",
    "AdminPrecondition",
    "AdminRequired",
    "AdminUnauthorized",
    "AdminUnavailable",
    "BrokerStartError",
    "CursorMoved",
    "DeduplicationDisabled",
    "DuplicateMessage",
    "ForkedClientError",
    "IncompleteChunkedMessage",
    "InvalidKeyHashRange",
    "InvalidMessageId",
    "InvalidTopic",
    "InvalidUse",
    "MessageIdNotFound",
    "MessageIdUnresolved",
    "MisroutedMessage",
    "MissingExtra",
    "NoReply",
    "NoSuchTopic",
    "NotOpen",
    "ProducerBroken",
    "ProducerForgotten",
    "PulsarExtError",
    "RequestFailed",
    "SchemaMismatch",
    "SequenceIdRejected",
    "SkipInsideMessage",
    "SkipUnconfirmed",
    "SlotsNotCovered",
    "SubscriptionBusy",
    "TopicRequired",
]


class PulsarExtError(PulsarException):  # type: ignore[misc]  # the official client ships no types
    """Root of the tree; `details` become attributes and survive pickling.

    Args:
        message: the problem, what was changed, and the remedy.
        **details: facts about the failure, readable as attributes.
    """

    retriable: ClassVar[bool] = False

    def __init__(self, message: str, **details: object) -> None:
        super().__init__(message)
        self.message = message
        self.details = details
        for name, value in details.items():
            setattr(self, name, value)

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.message, self.details)


def _rebuild(cls: type[PulsarExtError], message: str, details: dict[str, object]) -> PulsarExtError:
    return cls(message, **details)


class InvalidMessageId(PulsarExtError, ValueError):
    """The bytes, text or fields are not a message id."""


class MessageIdNotFound(PulsarExtError):
    """The topic does not have the message of the id: trimmed, deleted, or beyond its end."""


class IncompleteChunkedMessage(MessageIdNotFound):
    """Some chunks of the message are missing on the topic, so no client can assemble it."""


class MessageIdUnresolved(PulsarExtError):
    """The id could not be resolved; nothing was changed."""

    retriable = True


class TopicRequired(PulsarExtError, OperationNotSupported, ValueError):  # type: ignore[misc]
    """The consumer has several topics, and the id does not name its topic.

    It is also a `pulsar.OperationNotSupported`, which the official client raises.
    """


class InvalidUse(PulsarExtError, ValueError):
    """An argument or a call that would lose or strand messages; raised before anything was changed."""


class AdminRequired(InvalidUse):
    """The admin API is needed and not configured: pass `Client(admin=…)`; nothing was changed.

    The client does not use an admin API by itself if its credentials are in an official class, which does not expose
    them, if they would be sent over plain http to a port that was not configured, or if the admin API in the
    environment belongs to another cluster.
    """


class InvalidTopic(InvalidUse, InvalidTopicName):  # type: ignore[misc]  # the binding has no types
    """The topic name is invalid, or of a kind that this client does not support; nothing was opened."""


class InvalidKeyHashRange(InvalidUse):
    """A key hash range, or a set of them, is invalid: reversed, above 65,535, overlapping, or empty."""


class MissingExtra(InvalidUse, ModuleNotFoundError):
    """A package of an optional extra is missing; `extra` is the name of the extra."""

    @classmethod
    @contextmanager
    def named(cls, extra: str, user: str) -> Iterator[None]:
        """Raise MissingExtra instead of an ImportError in the block.

        Args:
            extra: the extra that installs the packages.
            user: the feature that needs them, at the start of the error.

        Raises:
            MissingExtra: an import failed.
        """
        try:
            yield
        except MissingExtra:
            raise
        except ImportError as error:
            message = f"{user} needs more packages ({error}): pip install 'pulsar-ext[{extra}]'"
            raise cls(message, extra=extra) from None


class SequenceIdRejected(InvalidUse):
    """The sequence id cannot be sent: it is invalid, too low, or set for some messages only.

    `sequence_id` is the rejected id, `last_pushed` the highest id assigned before, and `last_published` the highest id
    known to be persisted.
    """


class DuplicateMessage(PulsarExtError):
    """The topic already has the message; `sequence_id` is its id, None if it was automatic."""


class DeduplicationDisabled(PulsarExtError):
    """The broker does not deduplicate the topic, so no producer can be effectively once on it."""


class ProducerForgotten(PulsarExtError):
    """The broker has forgotten the last sequence id of a producer name, and would store duplicates.

    `producer_name` and `topic` identify the producer; `sequence_id` is the highest id found on the topic, or implied by
    the application.
    """


class ProducerBroken(PulsarExtError):
    """A message of this producer may or may not be persisted, so it accepts no more messages.

    Close it and create it again: the new producer reads from the broker what is persisted.
    """


class NotOpen(PulsarExtError):
    """The object was never opened by a `Client`, or was closed."""


class ForkedClientError(PulsarExtError):
    """The object was inherited across a fork, where the official client's threads do not exist."""


class SkipInsideMessage(PulsarExtError):
    """A skip would end inside a message; nothing was moved.

    `below` and `above` are the nearest possible counts; `above` is None if no larger count is possible yet.
    """


class CursorMoved(PulsarExtError):
    """An acknowledgement, a skip or a reset came between the plan of a skip and its execution; nothing was moved."""

    retriable = True


class SkipUnconfirmed(PulsarExtError):
    """The broker accepted a skip, but the cursor does not show it: it is at `found` instead of `expected`."""


class SubscriptionBusy(PulsarExtError, ConsumerBusy):  # type: ignore[misc]  # the official client ships no types
    """The connected consumers of a subscription keep another one from joining it; nothing was changed."""

    retriable = True


class NoSuchTopic(PulsarExtError, TopicNotFound):  # type: ignore[misc]
    """The topic does not exist, and a reader of key ranges does not create it; `topic` is its name."""


class SlotsNotCovered(PulsarExtError):
    """The consumers of a Key_Shared subscription do not cover all slots, which stalls all of them.

    `uncovered` and `overlapping` are `KeyHashRanges`.
    """

    retriable = True


class MisroutedMessage(PulsarExtError):
    """The broker delivered a message whose slot is outside the consumer's ranges, in a batch that mixes keys.

    `slot` is the message's slot and `message_id` its id as text. `misrouted` is the message itself, unacknowledged; it
    does not survive pickling.
    """

    misrouted: Any = None


class NoReply(PulsarExtError, Timeout):  # type: ignore[misc]
    """A request was not answered in time, or not completely; it may still be in progress.

    `topic` and `correlation_id` are those of the request, and `replies` is the number of replies received.
    """


class RequestFailed(PulsarExtError):
    """The replier of a request failed; a replier's handler raises it to report the reason to the requester."""


class AckNotConfirmed(PulsarExtError):
    """Acknowledgements were flushed, but the subscription's cursor on the broker does not show all of them.

    `missing` lists up to 100 of the missing ids as text, and `count` is their number. They stay acknowledged in this
    client and are sent again; it is unknown whether the broker has them.
    """

    retriable = True


class AdminError(PulsarExtError):
    """The admin REST API rejected the request, or failed; `status` and `reason` are the broker's."""


class AdminUnavailable(AdminError):
    """The admin API did not answer: unreachable, timed out, a redirect loop, or a 502, 503 or 504."""

    retriable = True


class AdminUnauthorized(AdminError):
    """401 or 403: credentials are missing, wrong, or not permitted."""


class AdminNotFound(AdminError):
    """404: tenant, namespace, topic, subscription or entry not found."""


class AdminConflict(AdminError):
    """409: it already exists, or is in use."""


class AdminPrecondition(AdminError):
    """412: the broker or the topic lacks a setting that this call needs."""


class AdminNotAllowed(AdminError):
    """405: the call does not apply to this kind of topic."""


class BrokerStartError(PulsarExtError):
    """The test harness could not start a broker; the message ends with the tail of its log."""


class SchemaMismatch(PulsarExtError, IncompatibleSchema):  # type: ignore[misc]  # the official client ships no types
    """A schema does not match the topic's schema, or a value cannot be read with it; nothing was opened.

    It is also a `pulsar.IncompatibleSchema`, which the official client raises.

    Args:
        message: the problem.
        **details: `differences`, each as text with the path of the field.
    """

    differences: tuple[str, ...] = ()
