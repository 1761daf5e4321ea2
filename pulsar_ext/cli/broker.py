"""`pulsar-ext broker`: a real broker for development, at a terminal or in a script."""

from __future__ import annotations

import json
import shlex
import signal
import sys
import threading
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter
from rich.console import Console
from rich.table import Table

from pulsar_ext.errors import MissingExtra

from .arguments import Backend, Json
from .output import note, print_result

if TYPE_CHECKING:
    from pulsar_ext.testing import Broker

# Here --version is the broker's.
app = App(name="broker", help="Run a broker on this machine, for development and tests.", version_flags=[])

Version = Annotated[str | None, Parameter(name=("--version", "--pulsar-version"), env_var="PULSAR_EXT_PULSAR_VERSION")]

_POLL_SECONDS = 0.5


@app.command
def run(
    *,
    profile: str = "plain",
    backend: Backend = None,
    port: int | None = None,
    admin_port: int | None = None,
    data_dir: Path | None = None,
    version: Version = None,
    as_json: Json = False,
) -> int:
    """Start a broker, print its URLs, and end it at Ctrl-C.

    Args:
        profile: Name of the broker's configuration. `pulsar-ext broker profiles` lists the names.
        port: Port for clients. The default is any free port.
        admin_port: Port for the admin REST API. The default is any free port.
        data_dir: Directory for the broker's data, which is kept; empty or missing the first time. Without it the
            data is deleted with the broker.
        version: Version of Pulsar to run. The default is the version that this library is tested with.
    """
    from pulsar_ext.testing import start_broker  # noqa: PLC0415  # loaded only by the command that needs it

    # Set before the start, so that a signal during it shuts down in order, too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    broker = start_broker(
        backend, profile, broker_port=port, admin_port=admin_port, data_dir=data_dir, version=version, report=note
    )
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    with broker:
        if as_json:
            print_result(_facts(broker))
        else:
            _show(broker)
        while not ended.wait(_POLL_SECONDS):
            if not broker.is_running():
                note(f"the broker exited by itself; the end of its log:\n{broker.log_tail()}")
                return 1
    return 0


@app.command
def profiles(*, as_json: Json = False) -> None:
    """List the profiles that a broker can be started with."""
    from pulsar_ext.testing import PROFILES  # noqa: PLC0415  # loaded only by the command that needs it

    if as_json:
        every = [
            {"name": one.name, "description": one.description, "settings": dict(one.settings)}
            for one in PROFILES.values()
        ]
        print_result(json.dumps(every, indent=1))
        return
    table = Table("profile", "description", "settings")
    for one in PROFILES.values():
        settings = (f"{name}={value.rpartition('.')[2]}" for name, value in one.settings.items())
        table.add_row(one.name, one.description, "\n".join(settings))
    Console().print(table)


@app.command
def fetch(*, version: Version = None) -> None:
    """Fetch the jars of the broker with Maven, and prepare Java to start it faster.

    Args:
        version: Version of Pulsar to fetch. The default is the version that this library is tested with.
    """
    with MissingExtra.named("testing", "pulsar-ext broker"):
        from pulsar_ext.testing.java_program import Java  # noqa: PLC0415  # loaded only by this command
        from pulsar_ext.testing.process import make_archive  # noqa: PLC0415  # loaded only by this command

    console = Console(highlight=False)
    with console.status("checking the jars") as status:
        jars = Java.find(status.update if console.is_terminal else console.print, version).jars
        status.update("starting a broker once, to archive its classes")
        archive = make_archive(version)
    console.print(f"jars in {jars}: {len(list(jars.glob('*.jar')))}", markup=False)
    console.print(
        f"class archive: {archive.name if archive else 'not supported by this Java; brokers start without it'}"
    )


def _facts(broker: Broker) -> dict[str, object]:
    return {
        "profile": broker.profile.name,
        "back_end": broker.back_end,
        "version": broker.version,
        "service_url": broker.service_url,
        "admin_url": broker.admin_url,
        **asdict(broker.access),
    }


def _show(broker: Broker) -> None:
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"[bold green]ready[/]: Pulsar {broker.version}, profile {broker.profile.name}")
    console.print(f"  clients    [bold]{broker.service_url}[/]\n  admin REST [bold]{broker.admin_url}[/]\n")
    if broker.access.authentication is not None:
        name, arguments = broker.access.authentication
        console.print(f"  {name}({', '.join(map(repr, arguments))})", markup=False)
    for name, value in broker.access.tls_options.items():
        console.print(f"  {name}={value!r}", markup=False)
    environment = {"PULSAR_URL": broker.service_url, "PULSAR_ADMIN_URL": broker.admin_url}
    if broker.token is not None:
        environment["PULSAR_TOKEN"] = broker.token
    for name, value in environment.items():
        console.print(f"export {name}={shlex.quote(value)}", markup=False)
    console.print("\n[dim]Ctrl-C ends it[/]")
    sys.stdout.flush()
