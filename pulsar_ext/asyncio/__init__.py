"""The whole library, awaited: `pulsar_ext.asyncio.Client` is a `pulsar.asyncio.Client` with everything of the other.

Each class stands over its blocking counterpart, which it holds in `blocking`, so that nothing is decided twice. Sends
and receives run on the C++ client's own threads; what would wait (opening, closing, seeking, the admin API) runs on
threads of the client's, and what Python looks at before the application does is received on one of the consumer's.
Errors are both worlds': `except pulsar.PulsarException` and `except pulsar.asyncio.PulsarException` catch them.
"""

from __future__ import annotations

from typing import Any

import pulsar.asyncio as _official_asyncio

from .client import Client
from .consumer import AckScope, Consumer
from .errors import PulsarException
from .key_shared import ConsumerBuilder, GroupReader, RangeReaderGroup, ReaderBuilder
from .producer import Producer
from .reader import Reader
from .table_view import TableView

__all__ = [
    "AckScope",
    "Client",
    "Consumer",
    "ConsumerBuilder",
    "GroupReader",
    "Producer",
    "PulsarException",
    "RangeReaderGroup",
    "Reader",
    "ReaderBuilder",
    "TableView",
]


def __getattr__(name: str) -> Any:
    """Resolve every other name of the official module."""
    return getattr(_official_asyncio, name)
