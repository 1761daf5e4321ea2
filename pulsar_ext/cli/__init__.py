"""The command line, `pulsar-ext`: one file a sub-command.

A module of this package with an `app` (a `cyclopts.App`) is a sub-command; there is nothing else to register.
"""

from __future__ import annotations

import io
import logging
import os
import signal
import sys
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cyclopts import App

__all__ = ["command_line", "main"]


_FAILURES = {"doctor": 3, "reproduce": 2}
"""The exit status of a failure where 1 says something else."""
_MISTYPED = 2
_INTERRUPTED = 130


def main() -> None:
    """Run the command line and exit: 0 for success, 1 for an error, printed in one line, 130 after Ctrl-C.

    What was mistyped gives 2. A command that has more to say says by its help what each status means.
    """
    interrupts = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if interrupts:  # an interrupted import can raise anything; there is nothing to end yet
        signal.signal(signal.SIGINT, lambda *_: os._exit(_INTERRUPTED))
    run = _loaded()

    from cyclopts import CycloptsError  # noqa: PLC0415  # what follows needs the extra
    from pulsar import PulsarException  # noqa: PLC0415

    # The error that ends a command says how often it was tried, in one line.
    logging.getLogger("pulsar_ext.admin").setLevel(logging.ERROR)
    failure = _FAILURES.get(sys.argv[1]) if len(sys.argv) > 1 else None
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # what its encoding lacks is seen, and is no error
    if interrupts:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        status = run(exit_on_error=False, result_action="return_int_as_exit_code_else_zero")
        if sys.stdout is not None:
            sys.stdout.flush()
    except CycloptsError:  # it was printed
        status = failure or _MISTYPED
    except BrokenPipeError:  # whoever read the output has seen enough
        status = failure or 1
    except (PulsarException, OSError) as error:
        print(f"pulsar-ext: {error}", file=sys.stderr)  # noqa: T201  # the one line
        status = failure or 1
    except KeyboardInterrupt:
        status = _INTERRUPTED
    _leave_output()
    sys.exit(status)


def _leave_output() -> None:
    """See to it that what could not be written is not tried again while the interpreter ends."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _loaded() -> App:
    """Return the command with all of its sub-commands, or exit with a line that says what is missing."""
    try:
        import cyclopts  # noqa: F401, PLC0415  # an extra, which the library does not need
        import rich  # noqa: F401, PLC0415  # likewise
    except ImportError:
        sys.exit("the command line needs more packages: pip install 'pulsar-ext[cli]'")
    try:
        return command_line()
    except ImportError as error:  # of a pulsar-client that this library does not work with, for one
        sys.exit(f"pulsar-ext: {error}")


def command_line() -> App:
    """Give the command with all of its sub-commands; it needs the extra `cli`."""
    from cyclopts import App  # noqa: PLC0415  # an extra

    # version.py has --version.
    root = App(name="pulsar-ext", help="Tools around Apache Pulsar for Python.", version_flags=[])
    root.register_install_completion_command(help="Make bash, zsh or fish complete this command.")
    for module in iter_modules(__path__):
        app = getattr(import_module(f"{__name__}.{module.name}"), "app", None)
        if app is not None:
            root.command(app)
    return root
