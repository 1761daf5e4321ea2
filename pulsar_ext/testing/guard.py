"""Watch the process that started something, and end that when the process is gone. Run by its path, never imported.

A program's death signal (`PR_SET_PDEATHSIG`) is tied to the *thread* that started it, and a pipe's end can be held
open by any forked child. A guard that watches its parent's process id has neither trouble, and works on every POSIX
system. Usage: `guard.py PARENT_PID WHAT ARGUMENT…`, where WHAT is

- `program`: run the command. SIGTERM asks the program to end, SIGUSR1 kills it; the guard stays until it is gone and
  passes on its exit status. If the parent is gone, the program is killed.
- `directory`: remove the directory. Programs in it have guards of their own, which end them at about the same time, and
  may write until then.
- `containers`: remove the containers of these names. It stands in for testcontainers' Ryuk, which is a container, from
  an image that cannot be pulled everywhere, and which removes whatever carries a label. A name that begins with
  `network:` is that of a Docker network, which is removed after its containers, and `directory:` one of this machine,
  which holds secrets.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time

_POLL_SECONDS = 0.25
_DIRECTORY_ATTEMPTS = 80
_ABSENT = 8
"""So often in a row must a directory be gone: a program that was not ended yet may have created it again."""
_CONTAINER_ATTEMPTS = 5
_NETWORK = "network:"
_DIRECTORY = "directory:"


def run(parent: int, command: list[str]) -> int:
    """Run the command until it ends or the parent is gone; in the latter case kill it."""
    program: subprocess.Popen[bytes] | None = None
    wanted = 0

    def pass_on(number: int, _frame: object) -> None:
        nonlocal wanted
        wanted = signal.SIGKILL if number == signal.SIGUSR1 else signal.SIGTERM
        if program is not None:
            program.send_signal(wanted)

    # Handlers, not SIG_IGN: a Java machine inherits ignored signals and then does not end on SIGTERM.
    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, pass_on)
    program = subprocess.Popen(command)
    if wanted:
        program.send_signal(wanted)
    while os.getppid() == parent:
        try:
            return program.wait(_POLL_SECONDS)
        except subprocess.TimeoutExpired:
            continue
    program.kill()
    program.wait()
    return 1


def remove_directory(parent: int, arguments: list[str]) -> int:
    """Wait until the parent is gone, then remove the directory, repeatedly until it stays away."""
    [directory] = arguments
    _wait_for_end(parent)
    absent = 0
    for _ in range(_DIRECTORY_ATTEMPTS):
        absent = 0 if os.path.lexists(directory) else absent + 1
        if absent >= _ABSENT:
            return 0
        shutil.rmtree(directory, ignore_errors=True)
        time.sleep(_POLL_SECONDS)
    return 1


def remove_containers(parent: int, names: list[str]) -> int:
    """Wait until the parent is gone, then remove each of them, containers running or not and with their data."""
    _wait_for_end(parent)
    for name in names:
        if name.startswith(_DIRECTORY):
            shutil.rmtree(name.removeprefix(_DIRECTORY), ignore_errors=True)
    # Loaded only when there is something to do, so that a guard costs next to nothing while a broker runs.
    from docker.errors import DockerException, NotFound  # type: ignore[import-not-found]  # noqa: PLC0415
    from testcontainers.core.docker_client import DockerClient  # noqa: PLC0415

    left = [name for name in names if not name.startswith(_DIRECTORY)]
    for _ in range(_CONTAINER_ATTEMPTS):
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


def _wait_for_end(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_POLL_SECONDS)


if __name__ == "__main__":
    _guards = {"program": run, "directory": remove_directory, "containers": remove_containers}
    sys.exit(_guards[sys.argv[2]](int(sys.argv[1]), sys.argv[3:]) & 0xFF)
