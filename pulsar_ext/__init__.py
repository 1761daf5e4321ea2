"""The drop-in for the official Apache Pulsar client: `import pulsar_ext as pulsar`.

Every public name of `pulsar`, its sub-modules included, resolves here. Those below are this library's own; the rest is
the official client's, unchanged.
"""

from typing import Any as _Any

import pulsar as _pulsar_official

from . import _official
from ._version import __version__
from .admin import AsyncPulsarAdmin, PulsarAdmin
from .client import AuthenticationToken, Client
from .consumer import Consumer
from .errors import (
    AdminConflict,
    AdminError,
    AdminNotAllowed,
    AdminNotFound,
    AdminPrecondition,
    AdminUnauthorized,
    AdminUnavailable,
    BrokerStartError,
    ForkedClientError,
    IncompleteChunkedMessage,
    InvalidMessageId,
    InvalidUse,
    MessageIdNotFound,
    MessageIdUnresolved,
    NotOpen,
    PulsarExtError,
    TopicRequired,
)
from .message import Message, MessageBatch
from .message_id import ChunkMessageId, MessageId
from .producer import Producer
from .reader import Reader
from .resolver import UnresolvedMessageIdWarning

__all__ = [  # noqa: RUF022  # ours first, what is ours alone after it
    "AuthenticationToken",
    "Client",
    "Consumer",
    "Message",
    "MessageBatch",
    "MessageId",
    "Producer",
    "Reader",
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
    "ForkedClientError",
    "IncompleteChunkedMessage",
    "InvalidMessageId",
    "InvalidUse",
    "MessageIdNotFound",
    "MessageIdUnresolved",
    "NotOpen",
    "PulsarAdmin",
    "PulsarExtError",
    "TopicRequired",
    "UnresolvedMessageIdWarning",
    "__version__",
]

_official.alias_submodules(__name__)

for _name in dir(_pulsar_official):
    if not _name.startswith("_") and _name not in globals():
        globals()[_name] = getattr(_pulsar_official, _name)
        if _name not in _official.INCIDENTAL_NAMES:
            __all__.append(_name)  # noqa: PYI056  # names that a type checker finds through __getattr__
del _name


def __getattr__(name: str) -> _Any:
    """Resolve what a later release of the official client adds."""
    return getattr(_pulsar_official, name)
