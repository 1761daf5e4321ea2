"""Remove containers when the process that started them is gone, however that ended. Run by its path, never imported.

It stands in for testcontainers' Ryuk, which is a container itself, from an image that cannot be pulled everywhere, and
which removes whatever carries a label; this knows names. Usage: `container_guard.py PARENT_PID NAME…`, where a name
that begins with `network:` is that of a Docker network, which goes behind its containers, and `directory:` one of this
machine, which holds secrets.
"""

from __future__ import annotations

import os
import shutil
import sys
import time

_POLL_SECONDS = 0.25
_ATTEMPTS = 5
_NETWORK = "network:"
_DIRECTORY = "directory:"


def main(parent: int, names: list[str]) -> int:
    """Wait until the parent is gone, then remove each of them, containers running or not and with their data."""
    while os.getppid() == parent:
        time.sleep(_POLL_SECONDS)
    for name in names:
        if name.startswith(_DIRECTORY):
            shutil.rmtree(name.removeprefix(_DIRECTORY), ignore_errors=True)
    # Loaded only when there is something to do, so that a guard costs next to nothing while a broker runs.
    from docker.errors import DockerException, NotFound  # type: ignore[import-not-found]  # noqa: PLC0415
    from testcontainers.core.docker_client import DockerClient  # noqa: PLC0415

    left = [name for name in names if not name.startswith(_DIRECTORY)]
    for _ in range(_ATTEMPTS):
        for name in list(left):
            try:
                engine = DockerClient().client
                if name.startswith(_NETWORK):
                    engine.networks.get(name.removeprefix(_NETWORK)).remove()
                else:
                    engine.containers.get(name).remove(force=True, v=True)
            except NotFound:
                pass
            except (DockerException, OSError):
                continue
            left.remove(name)
        if not left:
            return 0
        time.sleep(1)
    return 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
