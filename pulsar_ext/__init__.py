"""Drop-in replacement for the official Apache Pulsar client: `import pulsar_ext as pulsar`.

Every public name of `pulsar` and its submodules resolves here. The names below are this library's own; all others are
the official client's. Names, and the official client itself, are imported when first used, so the import costs little
in a program that does not use them, such as a pytest run with the plugin installed.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

__version__ = "0.1.0"

if _TYPE_CHECKING:  # the names in _HOMES for type checkers and the reference
    from . import admin as admin, asyncio as asyncio, errors as errors, schema as schema  # noqa: I001  # an import a module
    from ._native.core import (
        NativeStatus as NativeStatus,
        native_status as native_status,
    )
    from ._runtime.statistics import (
        ClientStats as ClientStats,
        ConsumerStats as ConsumerStats,
        ProducerStats as ProducerStats,
    )
    from .ack.by_id import AckResult as AckResult
    from .admin import (
        AsyncPulsarAdmin as AsyncPulsarAdmin,
        PulsarAdmin as PulsarAdmin,
    )
    from .chunks.resolver import UnresolvedMessageIdWarning as UnresolvedMessageIdWarning
    from .client.authentication import (
        AuthenticationBasic as AuthenticationBasic,
        AuthenticationOauth2 as AuthenticationOauth2,
        AuthenticationTLS as AuthenticationTLS,
        AuthenticationToken as AuthenticationToken,
    )
    from .client.client import Client as Client
    from .client.consumers import ConsumerEventListener as ConsumerEventListener
    from .consumer import Consumer as Consumer
    from .dedup.opening import TrimmedGroupWarning as TrimmedGroupWarning
    from .doctor.findings import (
        Diagnosis as Diagnosis,
        DiagnosisLimits as DiagnosisLimits,
    )
    from .errors import *  # noqa: F403  # every error
    from .ids.message_id import (
        ChunkMessageId as ChunkMessageId,
        MessageId as MessageId,
    )
    from .ids.position import (
        Position as Position,
        position_after as position_after,
    )
    from .intercept import (
        ConsumerInterceptor as ConsumerInterceptor,
        OutgoingMessage as OutgoingMessage,
        ProducerInterceptor as ProducerInterceptor,
        ReaderInterceptor as ReaderInterceptor,
    )
    from .key_shared.consumer import (
        KeySharedPolicy as KeySharedPolicy,
        MisroutedMessageWarning as MisroutedMessageWarning,
        RangeConsumer as RangeConsumer,
    )
    from .key_shared.coverage import (
        KeyCover as KeyCover,
        UncoveredSlotsWarning as UncoveredSlotsWarning,
        key_cover as key_cover,
    )
    from .key_shared.hash_ranges import (
        KeyHashRange as KeyHashRange,
        KeyHashRanges as KeyHashRanges,
    )
    from .key_shared.hashing import (
        KeyFormWarning as KeyFormWarning,
        auto_split_slot as auto_split_slot,
        key_slot as key_slot,
        key_slots as key_slots,
    )
    from .key_shared.plan import plan_key_hash_ranges as plan_key_hash_ranges
    from .key_shared.reader_group import (
        RangeReader as RangeReader,
        RangeReaderGroup as RangeReaderGroup,
    )
    from .look.survey import (
        MapLimits as MapLimits,
        Survey as Survey,
        TopicMap as TopicMap,
    )
    from .message import (
        Message as Message,
        MessageBatch as MessageBatch,
    )
    from .process import (
        Acknowledge as Acknowledge,
        DeadLetter as DeadLetter,
        ReconsumeLater as ReconsumeLater,
        Redeliver as Redeliver,
    )
    from .produce.router import HashingScheme as HashingScheme
    from .produce.batching import MixedKeyBatchWarning as MixedKeyBatchWarning
    from .produce.outcome import (
        DUPLICATE_MESSAGE as DUPLICATE_MESSAGE,
        SentMany as SentMany,
    )
    from .producer import Producer as Producer
    from .reader import Reader as Reader
    from .reading import Reading as Reading
    from .redelivery.schedule import MultiplierRedeliveryBackoff as MultiplierRedeliveryBackoff
    from .request import Replier as Replier
    from .request import Requester as Requester
    from .skip.skipper import SkipResult as SkipResult
    from .table_view import TableView as TableView
    from .topics_reader import TopicsReader as TopicsReader

_HOMES = {
    name: module
    for module, names in {
        "_native.core": "NativeStatus native_status",
        "_runtime.statistics": "ClientStats ConsumerStats ProducerStats",
        "ack.by_id": "AckResult",
        "admin": "AsyncPulsarAdmin PulsarAdmin",
        "chunks.resolver": "UnresolvedMessageIdWarning",
        "client.authentication": "AuthenticationBasic AuthenticationOauth2 AuthenticationTLS AuthenticationToken",
        "client.client": "Client",
        "client.consumers": "ConsumerEventListener",
        "consumer": "Consumer",
        "dedup.opening": "TrimmedGroupWarning",
        "doctor.findings": "Diagnosis DiagnosisLimits",
        "errors": (
            "AckNotConfirmed AdminConflict AdminError AdminNotAllowed AdminNotFound AdminPrecondition "
            "AdminRequired AdminUnauthorized AdminUnavailable BrokerStartError CursorMoved "
            "DeduplicationDisabled DuplicateMessage ForkedClientError IncompleteChunkedMessage "
            "InvalidKeyHashRange InvalidMessageId InvalidTopic InvalidUse MessageIdNotFound MessageIdUnresolved "
            "MisroutedMessage MissingExtra NoReply NoSuchTopic NotOpen ProducerBroken ProducerForgotten PulsarExtError "
            "RequestFailed SchemaMismatch SequenceIdRejected SkipInsideMessage SkipUnconfirmed "
            "SlotsNotCovered SubscriptionBusy TopicRequired"
        ),
        "ids.message_id": "ChunkMessageId MessageId",
        "ids.position": "Position position_after",
        "intercept": "ConsumerInterceptor OutgoingMessage ProducerInterceptor ReaderInterceptor",
        "key_shared.consumer": "KeySharedPolicy MisroutedMessageWarning RangeConsumer",
        "key_shared.coverage": "KeyCover UncoveredSlotsWarning key_cover",
        "key_shared.hash_ranges": "KeyHashRange KeyHashRanges",
        "key_shared.hashing": "KeyFormWarning auto_split_slot key_slot key_slots",
        "key_shared.plan": "plan_key_hash_ranges",
        "key_shared.reader_group": "RangeReader RangeReaderGroup",
        "look.survey": "MapLimits Survey TopicMap",
        "message": "Message MessageBatch",
        "process": "Acknowledge DeadLetter ReconsumeLater Redeliver",
        "produce.router": "HashingScheme",
        "produce.batching": "MixedKeyBatchWarning",
        "produce.outcome": "DUPLICATE_MESSAGE SentMany",
        "producer": "Producer",
        "reader": "Reader",
        "reading": "Reading",
        "redelivery.schedule": "MultiplierRedeliveryBackoff",
        "request": "Replier Requester",
        "skip.skipper": "SkipResult",
        "table_view": "TableView",
        "topics_reader": "TopicsReader",
    }.items()
    for name in names.split()
}
"""The defining module of each of this library's names."""

__path__ += [f"{__path__[0]}/_native/official"]  # noqa: F405  # `import pulsar_ext.functions`

_SUBMODULES = ("admin", "asyncio", "errors", "exceptions", "functions", "schema", "tableview")
"""Submodules that are attributes of this module without being imported."""


def __getattr__(name: str) -> _Any:
    """Import a name when it is first used; names that are not ours come from the official client of any release."""
    value: _Any
    if name in _HOMES:
        value = getattr(_import_module(f".{_HOMES[name]}", __name__), name)
    elif name in _SUBMODULES:
        value = _import_module(f".{name}", __name__)
    elif name == "__all__":
        value = [*_HOMES, "__version__", *(one for one in _official_names() if one not in _HOMES)]
    elif name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    else:
        value = getattr(_import_module("pulsar"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__getattr__("__all__")})


def _official_names() -> list[str]:
    exports = _import_module("._native.exports", __name__)
    return [one for one in exports.PUBLIC_NAMES if one not in exports.INCIDENTAL_NAMES]
