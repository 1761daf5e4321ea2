"""Watch a process, and clean up what it started when it has ended. Run by its path, never imported.

A program's death signal (`PR_SET_PDEATHSIG`) is bound to the *thread* that started it, and any forked child may hold a
pipe open. A guard that polls its parent's process id has neither problem, and works on every POSIX system.
Usage: `guard.py PARENT_PID WHAT ARGUMENT…`, where WHAT is

- `program`: run the command. SIGTERM is passed to the program, SIGUSR1 kills it; the guard exits after it, with its
  exit status. If the parent has ended, the program is killed.
- `directory`: remove the directory. Programs in it have their own guards, which kill them at about the same time; they
  may write until then.
- `containers`: remove the containers with these names. It replaces testcontainers' Ryuk, which is a container from an
  image that cannot be pulled everywhere, and which removes everything with a label. A name that begins with `network:`
  is a Docker network, removed after its containers; `directory:` is a directory of this machine with secrets.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time

_POLL_SECONDS = 0.25
_DIRECTORY_ATTEMPTS = 80
_ABSENT = 8
"""Consecutive polls in which a directory must be absent: a program that still runs may create it again."""
_CONTAINER_ATTEMPTS = 5
_NETWORK = "network:"
_DIRECTORY = "directory:"


def run(parent: int, command: list[str]) -> int:
    """Run the command until it exits, or kill it when the parent has ended."""
    program: subprocess.Popen[bytes] | None = None
    signal_sent = 0

    def pass_on(number: int, _frame: object) -> None:
        nonlocal signal_sent
        signal_sent = signal.SIGKILL if number == signal.SIGUSR1 else signal.SIGTERM
        if program is not None:
            program.send_signal(signal_sent)

    # Handlers, not SIG_IGN: a Java machine inherits ignored signals and then ignores SIGTERM.
    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, pass_on)
    program = subprocess.Popen(command)
    if signal_sent:
        program.send_signal(signal_sent)
    # A thread sleeps until the program exits; `wait` with a timeout would wake up every few milliseconds.
    waiting = threading.Thread(target=program.wait)
    waiting.start()
    while os.getppid() == parent:
        waiting.join(_POLL_SECONDS)
        if not waiting.is_alive():
            return program.wait()
    program.kill()
    program.wait()
    return 1


def remove_directory(parent: int, arguments: list[str]) -> int:
    """Wait until the parent has ended, then remove the directory repeatedly until it stays absent."""
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
    """Wait until the parent has ended, then remove the containers with their data, running or not."""
    _wait_for_end(parent)
    for name in names:
        if name.startswith(_DIRECTORY):
            shutil.rmtree(name.removeprefix(_DIRECTORY), ignore_errors=True)
    # Loaded only now, so that a guard needs hardly any memory while a broker runs.
    from docker.errors import DockerException, NotFound  # type: ignore[import-not-found]  # noqa: PLC0415
    from testcontainers.core.docker_client import DockerClient  # noqa: PLC0415

    remaining = [name for name in names if not name.startswith(_DIRECTORY)]
    for _ in range(_CONTAINER_ATTEMPTS):
        for name in list(remaining):
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
            remaining.remove(name)
        if not remaining:
            return 0
        time.sleep(1)
    return 1


def _wait_for_end(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_POLL_SECONDS)


if __name__ == "__main__":
    _guards = {"program": run, "directory": remove_directory, "containers": remove_containers}
    sys.exit(_guards[sys.argv[2]](int(sys.argv[1]), sys.argv[3:]) & 0xFF)
