"""The drop-in for the official Apache Pulsar client: `import pulsar_ext as pulsar`.

Every public name of `pulsar`, its sub-modules included, resolves here. Those below are this library's own; the rest is
the official client's, unchanged.
"""

__version__ = "0.1.0"

from typing import Any as _Any

import pulsar as _pulsar_official

from . import schema
from ._native import exports as _exports
from ._runtime.statistics import ClientStats, ConsumerStats, ProducerStats
from .admin import AsyncPulsarAdmin, PulsarAdmin
from .chunks.resolver import UnresolvedMessageIdWarning
from .client.authentication import (
    AuthenticationBasic,
    AuthenticationOauth2,
    AuthenticationTLS,
    AuthenticationToken,
)
from .client.client import Client
from .client.consumer_settings import ConsumerEventListener
from .consumer import Consumer
from .dedup.opening import TrimmedGroupWarning
from .doctor.facts import DiagnosisLimits
from .doctor.findings import Diagnosis
from .errors import (
    AckNotConfirmed,
    AdminConflict,
    AdminError,
    AdminNotAllowed,
    AdminNotFound,
    AdminPrecondition,
    AdminRequired,
    AdminUnauthorized,
    AdminUnavailable,
    BrokerStartError,
    CursorMoved,
    DeduplicationDisabled,
    DuplicateMessage,
    ForkedClientError,
    IncompleteChunkedMessage,
    InvalidKeyHashRange,
    InvalidMessageId,
    InvalidUse,
    MessageIdNotFound,
    MessageIdUnresolved,
    MisroutedMessage,
    NoReply,
    NoSuchTopic,
    NotOpen,
    ProducerBroken,
    ProducerForgotten,
    PulsarExtError,
    RequestFailed,
    SchemaMismatch,
    SequenceIdRejected,
    SkipInsideMessage,
    SkipUnconfirmed,
    SlotsNotCovered,
    TopicRequired,
)
from .ids.message_id import ChunkMessageId, MessageId
from .ids.position import Position, position_after
from .intercept.interfaces import ConsumerInterceptor, ProducerInterceptor, ReaderInterceptor
from .intercept.outgoing import OutgoingMessage
from .key_shared.consumer import MisroutedMessageWarning, RangeConsumer
from .key_shared.coverage import KeyCover, UncoveredSlotsWarning, key_cover
from .key_shared.hash_ranges import KeyHashRange, KeyHashRanges
from .key_shared.hashing import auto_split_slot, key_slot, key_slots
from .key_shared.key_encoding import KeyFormWarning
from .key_shared.plan import plan_key_hash_ranges
from .key_shared.policy import KeySharedPolicy
from .key_shared.reader import RangeReader
from .key_shared.reader_group import RangeReaderGroup
from .look.survey import MapLimits, Survey
from .look.topic_map import TopicMap
from .message import Message, MessageBatch
from .process.actions import Acknowledge, DeadLetter, ReconsumeLater, Redeliver
from .produce.hashing_scheme import HashingScheme
from .produce.mixed_keys import MixedKeyBatchWarning
from .produce.outcome import DUPLICATE_MESSAGE, SentMany
from .producer import Producer
from .reader import Reader
from .redelivery.backoff import MultiplierRedeliveryBackoff
from .request.replier import Replier
from .request.requester import Requester
from .skip.skipper import SkipResult
from .table_view import TableView
from .topics_reader.reader import TopicsReader

__all__ = [  # noqa: RUF022  # ours first, what is ours alone after it
    "AuthenticationBasic",
    "AuthenticationOauth2",
    "AuthenticationTLS",
    "AuthenticationToken",
    "Client",
    "Consumer",
    "Message",
    "MessageBatch",
    "MessageId",
    "Producer",
    "Reader",
    "TableView",
    "AckNotConfirmed",
    "Acknowledge",
    "AdminConflict",
    "AdminError",
    "AdminNotAllowed",
    "AdminNotFound",
    "AdminPrecondition",
    "AdminRequired",
    "AdminUnauthorized",
    "AdminUnavailable",
    "AsyncPulsarAdmin",
    "BrokerStartError",
    "ChunkMessageId",
    "ClientStats",
    "ConsumerEventListener",
    "ConsumerInterceptor",
    "ConsumerStats",
    "CursorMoved",
    "DUPLICATE_MESSAGE",
    "DeadLetter",
    "DeduplicationDisabled",
    "Diagnosis",
    "DiagnosisLimits",
    "DuplicateMessage",
    "ForkedClientError",
    "HashingScheme",
    "IncompleteChunkedMessage",
    "InvalidKeyHashRange",
    "InvalidMessageId",
    "InvalidUse",
    "KeyCover",
    "KeyFormWarning",
    "KeyHashRange",
    "KeyHashRanges",
    "KeySharedPolicy",
    "MapLimits",
    "MessageIdNotFound",
    "MessageIdUnresolved",
    "MisroutedMessage",
    "MisroutedMessageWarning",
    "MixedKeyBatchWarning",
    "MultiplierRedeliveryBackoff",
    "NoReply",
    "NoSuchTopic",
    "NotOpen",
    "OutgoingMessage",
    "PulsarAdmin",
    "Position",
    "ProducerBroken",
    "ProducerForgotten",
    "ProducerInterceptor",
    "ProducerStats",
    "PulsarExtError",
    "ReconsumeLater",
    "Redeliver",
    "Replier",
    "RequestFailed",
    "Requester",
    "SchemaMismatch",
    "SentMany",
    "SequenceIdRejected",
    "SkipInsideMessage",
    "SkipResult",
    "SkipUnconfirmed",
    "RangeConsumer",
    "RangeReader",
    "RangeReaderGroup",
    "ReaderInterceptor",
    "SlotsNotCovered",
    "Survey",
    "TopicMap",
    "TopicRequired",
    "TopicsReader",
    "TrimmedGroupWarning",
    "UncoveredSlotsWarning",
    "UnresolvedMessageIdWarning",
    "__version__",
    "auto_split_slot",
    "key_cover",
    "key_slot",
    "key_slots",
    "plan_key_hash_ranges",
    "position_after",
    "schema",
]

_exports.alias_submodules(__name__)

_theirs = {name: value for name, value in _exports.PUBLIC_NAMES.items() if name not in globals()}
globals().update(_theirs)
__all__ += [name for name in _theirs if name not in _exports.INCIDENTAL_NAMES]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> _Any:
    """Resolve what a later release of the official client adds."""
    return getattr(_pulsar_official, name)
