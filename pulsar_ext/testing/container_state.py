"""What the engine says of a container: whether it runs, and what it has printed."""

from __future__ import annotations

import contextlib
from typing import Any

from docker.errors import NotFound  # type: ignore[import-not-found]  # mypy sees docker/

__all__ = ["log_of", "runs"]


def runs(container: Any) -> bool:
    """Return whether a container runs now; False for None, and for one that is gone."""
    with contextlib.suppress(NotFound):
        if container is not None:
            container.reload()
            return bool(container.status == "running")
    return False


def log_of(container: Any, since: int) -> str:
    """Return what a container has printed; nothing for None, and for one that is gone.

    Args:
        container: the engine's.
        since: from when on, in nanoseconds since the epoch; 0 for all of it.
    """
    with contextlib.suppress(NotFound):
        if container is not None:
            return bytes(container.logs(since=since / 1e9 if since else None)).decode(errors="replace")
    return ""
