"""Run a program that must not outlive its owner. Run by its path, never imported.

A program's death signal (`PR_SET_PDEATHSIG`) is tied to the *thread* that started it, and a pipe's end can be held
open by any forked child. A guard that watches its parent's process id has neither trouble, and works on every POSIX
system. Usage: `guard.py PARENT_PID COMMAND…`.

SIGTERM asks the program to end, SIGUSR1 kills it; the guard stays until it is gone and passes on its exit status.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys

_POLL_SECONDS = 0.25


def main(parent: int, command: list[str]) -> int:
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


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]) & 0xFF)
