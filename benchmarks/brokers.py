"""Broker of a benchmark: a running one, or its own."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pulsar_ext.testing import Profile

__all__ = ["broker_at"]


@contextlib.contextmanager
def broker_at(
    urls: Sequence[str] | None, profile: str | Profile = "plain", java_options: Sequence[str] = ()
) -> Iterator[Sequence[str]]:
    """Yield the URLs of a running broker, or those of a broker started for the block.

    Args:
        urls: of the broker, and of its admin API if that is used; None to start a broker.
        profile: of the started broker.
        java_options: more options for the started broker's Java machine.
    """
    if urls is not None:
        yield urls
        return
    from pulsar_ext.testing import PulsarProcess  # noqa: PLC0415  # not needed with a running broker

    # The harness limits compilation for a quick start; here the broker must not limit the clients.
    options = ["-XX:TieredStopAtLevel=4", *java_options]
    with PulsarProcess(profile, heap="1g", java_options=options) as broker:
        yield broker.service_url, broker.admin_url
