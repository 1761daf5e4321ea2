"""The library for asyncio: `pulsar_ext.asyncio.Client` is a `pulsar.asyncio.Client` with all features.

Each class wraps its blocking counterpart in `blocking`, so that behaviour is implemented once. Sends and receives run
on the C++ client's threads. Calls that block (opening, closing, seeking, the admin API) run on the asyncio client's own
threads. If Python screens messages before the application gets them, the consumer receives on a thread of its own.
Errors are caught by both `except pulsar.PulsarException` and `except pulsar.asyncio.PulsarException`.
"""

from __future__ import annotations

from typing import Any

import pulsar.asyncio as _official_asyncio

from .client import Client, ConsumerBuilder, ReaderBuilder
from .consumer import AckScope, Consumer
from .errors import PulsarException
from .producer import Producer
from .reader import GroupReader, RangeReaderGroup, Reader, Reading, TableView
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
    "Reading",
    "Replier",
    "Replies",
    "Requester",
    "TableView",
]


def __getattr__(name: str) -> Any:
    """Return any other name of the official module."""
    return getattr(_official_asyncio, name)
