"""FastStream broker for Pulsar: `PulsarBroker`, its router, its messages and its test client.

It is based on `pulsar_ext.asyncio`: a subscriber is a consumer, and messages are published by producers that are kept
open. FastStream's headers are Pulsar's properties. Needs the extra `faststream`.
"""

from __future__ import annotations

from pulsar_ext.errors import MissingExtra

with MissingExtra.named("faststream", "pulsar_ext.faststream"):
    from .annotations import PulsarMessage
    from .broker import PulsarBroker
    from .publisher import PulsarResponse
    from .registrator import PulsarPublisher, PulsarRoute, PulsarRouter
    from .testing import TestPulsarBroker

__all__ = [
    "PulsarBroker",
    "PulsarMessage",
    "PulsarPublisher",
    "PulsarResponse",
    "PulsarRoute",
    "PulsarRouter",
    "TestPulsarBroker",
]
