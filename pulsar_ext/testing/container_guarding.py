"""Having containers and their secrets removed when the process that starts them is gone, however that ends."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from . import container_guard

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["start_guard"]


def start_guard(containers: Sequence[str], secrets: Path, network: str | None = None) -> subprocess.Popen[bytes]:
    """Start the guard of this process's containers; before they exist, so that they can never be left behind.

    Args:
        containers: their names.
        secrets: the directory on this machine of what they are given.
        network: the name of their own Docker network, if they have one.
    """
    names = [*containers, *([f"network:{network}"] if network is not None else []), f"directory:{secrets}"]
    return subprocess.Popen(
        [sys.executable, "-P", container_guard.__file__, str(os.getpid()), *names],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
