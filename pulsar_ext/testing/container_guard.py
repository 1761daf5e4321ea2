"""Remove a container when the process that started it is gone, however that ended. Run by its path, never imported.

It stands in for testcontainers' Ryuk, which is a container itself, from an image that cannot be pulled everywhere, and
which removes whatever carries a label; this knows one name. Usage: `container_guard.py PARENT_PID NAME`.
"""

from __future__ import annotations

import os
import sys
import time

_POLL_SECONDS = 0.25
_ATTEMPTS = 5


def main(parent: int, name: str) -> int:
    """Wait until the parent is gone, then remove the container, running or not, and its data."""
    while os.getppid() == parent:
        time.sleep(_POLL_SECONDS)
    # Loaded only when there is something to do, so that a guard costs next to nothing while a broker runs.
    from docker.errors import DockerException, NotFound  # type: ignore[import-not-found]  # noqa: PLC0415
    from testcontainers.core.docker_client import DockerClient  # noqa: PLC0415

    for _ in range(_ATTEMPTS):
        try:
            DockerClient().client.containers.get(name).remove(force=True, v=True)
        except NotFound:
            return 0
        except (DockerException, OSError):
            time.sleep(1)
        else:
            return 0
    return 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2]))
