"""The command line, `pulsar-ext`: one file a sub-command.

A module of this package with an `app` (a `cyclopts.App`) is a sub-command; there is nothing else to register.
"""

from __future__ import annotations

import logging
import sys
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cyclopts import App

__all__ = ["command_line", "main"]


def main() -> None:
    """Run the command line and exit: 0 for success, 1 for an error, printed in one line, 130 after Ctrl-C."""
    try:
        import cyclopts  # noqa: F401, PLC0415  # an extra, which the library does not need
        import rich  # noqa: F401, PLC0415  # likewise
    except ImportError:
        sys.exit("the command line needs more packages: pip install 'pulsar-ext[cli]'")

    from pulsar_ext.errors import PulsarExtError  # noqa: PLC0415  # what follows needs the extra

    # The error that ends a command says how often it was tried, in one line.
    logging.getLogger("pulsar_ext.admin").setLevel(logging.ERROR)
    try:
        sys.exit(command_line()())
    except PulsarExtError as error:
        sys.exit(f"pulsar-ext: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


def command_line() -> App:
    """Give the command with all of its sub-commands; it needs the extra `cli`."""
    from cyclopts import App  # noqa: PLC0415  # an extra

    from pulsar_ext import __version__  # noqa: PLC0415  # what follows needs the extra

    root = App(name="pulsar-ext", help="Tools around Apache Pulsar for Python.", version=__version__)
    root.register_install_completion_command(help="Make bash, zsh or fish complete this command.")
    for module in iter_modules(__path__):
        app = getattr(import_module(f"{__name__}.{module.name}"), "app", None)
        if app is not None:
            root.command(app)
    return root
