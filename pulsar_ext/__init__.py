"""The drop-in for the official Apache Pulsar client: `import pulsar_ext as pulsar`.

Every public name of `pulsar`, its sub-modules included, resolves here. Those below are this library's own; the rest is
the official client's, unchanged.
"""

from typing import Any as _Any

import pulsar as _pulsar_official

from . import _official
from ._version import __version__
from .admin import AsyncPulsarAdmin, PulsarAdmin
from .bulk import SentMany
from .callbacks import DUPLICATE_MESSAGE
from .client import AuthenticationToken, Client, TableView
from .consumer import Consumer
from .dedup_open import TrimmedGroupWarning
from .errors import (
    AckNotConfirmed,
    AdminConflict,
    AdminError,
    AdminNotAllowed,
    AdminNotFound,
    AdminPrecondition,
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
    NoSuchTopic,
    NotOpen,
    ProducerBroken,
    ProducerForgotten,
    PulsarExtError,
    SequenceIdRejected,
    SkipInsideMessage,
    SkipUnconfirmed,
    SlotsNotCovered,
    TopicRequired,
)
from .key_cover import KeyCover, UncoveredSlotsWarning, key_cover
from .key_forms import KeyFormWarning
from .key_shared import KeySharedPolicy
from .keys import KeyHashRange, KeyHashRanges, key_slot, key_slots, plan_key_hash_ranges
from .message import Message, MessageBatch
from .message_id import ChunkMessageId, MessageId
from .mixed_batches import MixedKeyBatchWarning
from .positions import Position, position_after
from .producer import Producer
from .range_consumer import MisroutedMessageWarning, RangeConsumer
from .range_group import RangeReaderGroup
from .range_reader import RangeReader
from .reader import Reader
from .resolver import UnresolvedMessageIdWarning
from .skip import SkipResult

__all__ = [  # noqa: RUF022  # ours first, what is ours alone after it
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
    "AdminConflict",
    "AdminError",
    "AdminNotAllowed",
    "AdminNotFound",
    "AdminPrecondition",
    "AdminUnauthorized",
    "AdminUnavailable",
    "AsyncPulsarAdmin",
    "BrokerStartError",
    "ChunkMessageId",
    "CursorMoved",
    "DUPLICATE_MESSAGE",
    "DeduplicationDisabled",
    "DuplicateMessage",
    "ForkedClientError",
    "IncompleteChunkedMessage",
    "InvalidKeyHashRange",
    "InvalidMessageId",
    "InvalidUse",
    "KeyCover",
    "KeyFormWarning",
    "KeyHashRange",
    "KeyHashRanges",
    "KeySharedPolicy",
    "MessageIdNotFound",
    "MessageIdUnresolved",
    "MisroutedMessage",
    "MisroutedMessageWarning",
    "MixedKeyBatchWarning",
    "NoSuchTopic",
    "NotOpen",
    "PulsarAdmin",
    "Position",
    "ProducerBroken",
    "ProducerForgotten",
    "PulsarExtError",
    "SentMany",
    "SequenceIdRejected",
    "SkipInsideMessage",
    "SkipResult",
    "SkipUnconfirmed",
    "RangeConsumer",
    "RangeReader",
    "RangeReaderGroup",
    "SlotsNotCovered",
    "TopicRequired",
    "TrimmedGroupWarning",
    "UncoveredSlotsWarning",
    "UnresolvedMessageIdWarning",
    "__version__",
    "key_cover",
    "key_slot",
    "key_slots",
    "plan_key_hash_ranges",
    "position_after",
]

_official.alias_submodules(__name__)

_theirs = {name: value for name, value in _official.PUBLIC_NAMES.items() if name not in globals()}
globals().update(_theirs)
__all__ += [name for name in _theirs if name not in _official.INCIDENTAL_NAMES]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> _Any:
    """Resolve what a later release of the official client adds."""
    return getattr(_pulsar_official, name)
