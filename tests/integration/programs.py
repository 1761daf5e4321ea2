"""Programs in separate processes, with a time limit that only a hang reaches."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

from reach import IMPORTED, Reach

if TYPE_CHECKING:
    from pathlib import Path

HANG_SECONDS = 120

PREAMBLE = f"""{IMPORTED}
import os, signal, sys, threading, time
import pulsar_ext as pulsar, pulsar_ext.asyncio
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job has it ignored
reach, topic = Reach.unpack(sys.argv[1]), sys.argv[2]
def connect(url=reach.service_url, made=pulsar.Client, **options):
    logger = pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/stderr")  # standard output belongs to the program
    return made(url, logger=logger, **{{**reach.options(), **options}})
EARLIEST = pulsar.InitialPosition.Earliest
"""
AWAITED = """
from awaited import AwaitedClient
blocking = connect
def connect(*args, **options):
    return AwaitedClient(blocking(*args, made=pulsar.asyncio.Client, **options))
"""


def run_program(
    source: str, directory: Path, reach: Reach, topic: str, *, awaited: bool
) -> subprocess.CompletedProcess[str]:
    """Run a program that connects with the blocking client, or with the asyncio client in its shape."""
    script = directory / "program.py"
    script.write_text(PREAMBLE + (AWAITED if awaited else "") + textwrap.dedent(source))
    return subprocess.run(
        [sys.executable, "-X", "faulthandler", str(script), reach.pack(), topic],
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )
