"""The whole library for an event loop: `pulsar_ext.asyncio.Client` is a `pulsar.asyncio.Client` with all its features.

Each class stands over its blocking counterpart, which it holds in `blocking`, so that nothing is decided twice. Sends
and receives run on the C++ client's own threads. Calls that wait (opening, closing, seeking, the admin API) run on
threads of the asyncio client's. Where Python looks at messages before the application does, the consumer receives them
on a thread of its own. Both `except pulsar.PulsarException` and `except pulsar.asyncio.PulsarException` catch errors.
"""

from __future__ import annotations

from typing import Any

import pulsar.asyncio as _official_asyncio

from .client import Client
from .consumer import AckScope, Consumer
from .errors import PulsarException
from .key_shared import ConsumerBuilder, GroupReader, RangeReaderGroup, ReaderBuilder
from .producer import Producer
from .reader import Reader, TableView
from .requests import Replier, Replies, Requester

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
    "Replier",
    "Replies",
    "Requester",
    "TableView",
]


def __getattr__(name: str) -> Any:
    """Resolve every other name of the official module."""
    return getattr(_official_asyncio, name)
