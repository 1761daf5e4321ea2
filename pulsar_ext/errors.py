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
        │   ├── AdminRequired                              the admin API is needed, and the client may not ask one
        │   ├── InvalidTopic           (also InvalidTopicName) not the name of a topic, or not of this client's kind
        │   ├── InvalidKeyHashRange                        a range of key slots, or a set of them, that is invalid
        │   ├── MissingExtra           (also ModuleNotFoundError) a package is missing; the message names its extra
        │   └── SequenceIdRejected                         an invalid one, one that goes back, or given to some only
        ├── NotOpen                                        the object was never opened by a Client, or was closed
        ├── ForkedClientError                              the object was inherited across a fork
        ├── DuplicateMessage                               the topic holds the message already
        ├── DeduplicationDisabled                          the broker does not deduplicate the topic
        ├── ProducerForgotten                              the broker no longer knows the ids of a producer name
        ├── ProducerBroken                                 it is not known what became of a message that was sent
        ├── SkipInsideMessage                              a skip would end inside a batch or a chunked message
        ├── CursorMoved                (retriable)         the cursor moved between the plan of a skip and its execution
        ├── SkipUnconfirmed                                a skip was asked for, and the cursor does not show it
        ├── NoSuchTopic                (also TopicNotFound) a reader of key ranges does not create a topic
        ├── SlotsNotCovered            (retriable)         a Key_Shared subscription has slots that no consumer covers
        ├── SchemaMismatch        (also IncompatibleSchema) a schema or a value does not go with the topic's schema
        ├── MisroutedMessage                               a message came to a consumer whose ranges exclude its slot
        ├── NoReply                    (also Timeout)      a request was not answered in time, or not to the end
        ├── RequestFailed                                  the replier of a request says that it failed
        ├── AckNotConfirmed            (retriable)         the subscription's cursor does not show acknowledgements
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

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from pulsar import IncompatibleSchema, InvalidTopicName, OperationNotSupported, PulsarException, Timeout, TopicNotFound

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


class TopicRequired(PulsarExtError, OperationNotSupported, ValueError):  # type: ignore[misc]
    """The consumer reads several topics and the id does not say which one it belongs to.

    It is a `pulsar.OperationNotSupported` too, as the official client raises.
    """


class InvalidUse(PulsarExtError, ValueError):
    """An argument or a call that would lose or strand messages, refused before anything was changed."""


class AdminRequired(InvalidUse):
    """The admin API is needed, and the client may not ask one by itself: give `Client(admin=…)`; nothing was changed.

    Its credentials are those of an official class, which shows them to nobody, or would go over plain http to a port
    that nobody named, or the admin API that the environment names is that of another cluster.
    """


class InvalidTopic(InvalidUse, InvalidTopicName):  # type: ignore[misc]  # the binding has no types
    """Text that is not a topic's name, or names a kind of topic that this client does not know; nothing was opened."""


class InvalidKeyHashRange(InvalidUse):
    """A range of key slots, or a set of them, that is invalid: backwards, above 65,535, overlapping, or empty."""


class MissingExtra(InvalidUse, ModuleNotFoundError):
    """A package is missing that an extra of this library brings; `extra` is the extra's name."""

    @classmethod
    @contextmanager
    def named(cls, extra: str, user: str) -> Iterator[None]:
        """Have an import that fails in the block name the extra to install.

        Args:
            extra: the extra that brings the packages.
            user: what needs them, as the error's first words.

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
    """A sequence id that cannot be sent: it goes back, is not a number, or only some messages have one.

    `sequence_id` is the rejected one, `last_pushed` the highest one given before, `last_published` the highest one that
    is known to be persisted.
    """


class DuplicateMessage(PulsarExtError):
    """The topic holds the message already; `sequence_id` is its id, None if the application gave none."""


class DeduplicationDisabled(PulsarExtError):
    """The broker does not deduplicate the topic, so that no producer can be effectively once on it."""


class ProducerForgotten(PulsarExtError):
    """The broker no longer knows what a producer name has sent, so that it would store duplicates.

    `producer_name` and `topic` say whose; `sequence_id` is the highest id that the topic was found to hold, or that the
    application says it holds.
    """


class ProducerBroken(PulsarExtError):
    """It is not known whether something that this producer sent is persisted, so nothing may follow it.

    Close it and create it again: the new one learns from the broker what is persisted.
    """


class NotOpen(PulsarExtError):
    """The object was never opened by a `Client`, or has been closed."""


class ForkedClientError(PulsarExtError):
    """The object was inherited across a fork, where the official client's threads do not exist."""


class SkipInsideMessage(PulsarExtError):
    """A skip would end inside a message; nothing was moved.

    `below` and `above` are the nearest counts that are possible; `above` is None while no larger count is.
    """


class CursorMoved(PulsarExtError):
    """An acknowledgement, a skip or a reset came between the plan of a skip and its execution; nothing was moved."""

    retriable = True


class SkipUnconfirmed(PulsarExtError):
    """The broker was asked to skip and the cursor does not show it: it is at `found` instead of `expected`."""


class NoSuchTopic(PulsarExtError, TopicNotFound):  # type: ignore[misc]
    """The topic does not exist, and a reader of key ranges does not create it; `topic` names it."""


class SlotsNotCovered(PulsarExtError):
    """The consumers of a Key_Shared subscription leave slots uncovered, which stalls all of them.

    `uncovered` and `overlapping` are `KeyHashRanges`.
    """

    retriable = True


class MisroutedMessage(PulsarExtError):
    """The broker gave a consumer a message of a slot outside its ranges, because it came in a batch that mixes keys.

    `slot` is the message's slot and `message_id` its id as text. `misrouted` is the message itself, not acknowledged;
    it does not survive pickling.
    """

    misrouted: Any = None


class NoReply(PulsarExtError, Timeout):  # type: ignore[misc]
    """A request was not answered in time, or not to the end; it may still be under way.

    `topic` is the request's, `correlation_id` its own, and `replies` says how many replies came.
    """


class RequestFailed(PulsarExtError):
    """The replier of a request failed; a replier's handler raises it to tell the requester why."""


class AckNotConfirmed(PulsarExtError):
    """Acknowledgements were flushed and the subscription's cursor on the broker does not show all of them.

    `missing` lists the ids that it does not show, as text, at most 100 of them, and `count` says how many there are.
    They stay acknowledged here, and are sent again; whether the broker has them is not known.
    """

    retriable = True


class AdminError(PulsarExtError):
    """The admin REST API refused the request or failed; `status` and `reason` are the broker's own."""


class AdminUnavailable(AdminError):
    """No usable answer: refused, unreachable, timed out, redirected in circles, or a 502, 503 or 504."""

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


class SchemaMismatch(PulsarExtError, IncompatibleSchema):  # type: ignore[misc]  # the official client ships no types
    """A schema does not go with the topic's, or a value cannot be read with it; nothing was opened.

    It is a `pulsar.IncompatibleSchema` too, as the official client raises.

    Args:
        message: what was found.
        **details: `differences`, each as text, with the path of the field.
    """

    differences: tuple[str, ...] = ()
