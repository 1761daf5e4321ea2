"""Remove a directory when the process that made it is gone, however that ended. Run by its path, never imported.

Usage: `scratch_guard.py PARENT_PID DIRECTORY`. What runs in it has guards of its own, which end it at about the same
time, and may write until then.
"""

from __future__ import annotations

import os
import shutil
import sys
import time

_POLL_SECONDS = 0.25
_ATTEMPTS = 80
_ABSENT = 8
"""So often in a row must the directory be gone: who was not ended yet may have made it anew."""


def main(parent: int, directory: str) -> int:
    """Wait until the parent is gone, then remove the directory, again and again until it stays away."""
    while os.getppid() == parent:
        time.sleep(_POLL_SECONDS)
    absent = 0
    for _ in range(_ATTEMPTS):
        absent = 0 if os.path.lexists(directory) else absent + 1
        if absent >= _ABSENT:
            return 0
        shutil.rmtree(directory, ignore_errors=True)
        time.sleep(_POLL_SECONDS)
    return 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2]))
