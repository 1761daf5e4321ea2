"""The command line, `pulsar-ext`: one module per sub-command.

A module of this package with an `app` (a `cyclopts.App`) is a sub-command; it needs no registration.
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
"""Exit status of a failure, for commands where 1 has another meaning."""
_USAGE_ERROR = 2
_INTERRUPTED = 130


def main() -> None:
    """Run the command line and exit: 0 for success, 1 for an error, printed in one line, 130 after Ctrl-C.

    A usage error exits with 2. The help of a command lists its other statuses.
    """
    interrupts = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if interrupts:  # an interrupted import can raise anything, and nothing has started yet
        signal.signal(signal.SIGINT, lambda *_: os._exit(_INTERRUPTED))
    run = _loaded()

    from cyclopts import CycloptsError  # noqa: PLC0415  # needs the extra
    from pulsar import PulsarException  # noqa: PLC0415

    # The error that ends a command has the number of attempts in its one line.
    logging.getLogger("pulsar_ext.admin").setLevel(logging.ERROR)
    failure = _FAILURES.get(sys.argv[1]) if len(sys.argv) > 1 else None
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # escape characters that its encoding lacks
    if interrupts:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        status = run(exit_on_error=False, result_action="return_int_as_exit_code_else_zero")
        if sys.stdout is not None:
            sys.stdout.flush()
    except CycloptsError:  # already printed
        status = failure or _USAGE_ERROR
    except BrokenPipeError:  # the reader of the output has closed it
        status = failure or 1
    except (PulsarException, OSError) as error:
        print(f"pulsar-ext: {error}", file=sys.stderr)  # noqa: T201  # the one line
        status = failure or 1
    except KeyboardInterrupt:
        status = _INTERRUPTED
    _discard_output()
    sys.exit(status)


def _discard_output() -> None:
    """Prevent another attempt to write unwritable output while the interpreter exits."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _loaded() -> App:
    """Return the command with all sub-commands, or exit with a line that names what is missing."""
    try:
        import cyclopts  # noqa: F401, PLC0415  # an extra
        import rich  # noqa: F401, PLC0415  # an extra
    except ImportError:
        sys.exit("the command line needs more packages: pip install 'pulsar-ext[cli]'")
    try:
        return command_line()
    except ImportError as error:  # for example of an unsupported pulsar-client
        sys.exit(f"pulsar-ext: {error}")


def command_line() -> App:
    """Return the command with all sub-commands; requires the extra `cli`."""
    from cyclopts import App  # noqa: PLC0415  # an extra

    # version.py has --version.
    root = App(name="pulsar-ext", help="Tools around Apache Pulsar for Python.", version_flags=[])
    root.register_install_completion_command(help="Make bash, zsh or fish complete this command.")
    for module in iter_modules(__path__):
        app = getattr(import_module(f"{__name__}.{module.name}"), "app", None)
        if app is not None:
            root.command(app)
    return root
