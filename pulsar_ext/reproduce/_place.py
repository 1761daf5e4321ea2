"""Where a scenario runs: a namespace of its own on the broker."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Place"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a scenario takes place.

    Args:
        service_url: where clients connect.
        admin_url: the admin REST API.
        namespace: `tenant/namespace`, for the scenario's topics.
        chunk_bytes: the broker's `maxMessageSize`, above which a message is sent in chunks.
        token: what to authenticate with, if anything.
        broker_version: the broker's own version.
        why_not: why the scenarios cannot run there; empty if they can.
    """

    service_url: str
    admin_url: str
    namespace: str
    chunk_bytes: int = 5 * 1024 * 1024
    token: str | None = field(default=None, repr=False)
    broker_version: str = ""
    why_not: str = ""
