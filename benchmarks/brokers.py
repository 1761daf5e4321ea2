"""The broker that a benchmark asks: one that runs already, or one of its own."""

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
    """Give the URLs of a broker that runs already, or else those of one that runs meanwhile.

    Args:
        urls: of the broker, and of its admin API where that is asked; None for a broker of its own.
        profile: of that one.
        java_options: more options for the Java machine of that one.
    """
    if urls is not None:
        yield urls
        return
    from pulsar_ext.testing import PulsarProcess  # noqa: PLC0415  # not needed where a broker runs already

    # The harness compiles little, for a quick start; here the broker must not be what limits the clients.
    options = ["-XX:TieredStopAtLevel=4", *java_options]
    with PulsarProcess(profile, heap="1g", java_options=options) as broker:
        yield broker.service_url, broker.admin_url
