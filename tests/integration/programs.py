"""Programs that run in a process of their own, with a time limit that only a hang reaches."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

HANG_SECONDS = 120

PREAMBLE = """
import os, signal, sys, threading, time
import pulsar_ext as pulsar, pulsar_ext.asyncio
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts what is in the background with it ignored
service_url, admin_url, topic = sys.argv[1:4]
def connect(url=service_url, made=pulsar.Client, **options):
    return made(url, admin=admin_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error), **options)
EARLIEST = pulsar.InitialPosition.Earliest
"""
AWAITED = f"""
sys.path.insert(0, {str(Path(__file__).parent)!r})
from awaited import AwaitedClient
blocking = connect
def connect(*args, **options):
    return AwaitedClient(blocking(*args, made=pulsar.asyncio.Client, **options))
"""


def run_program(source: str, directory: Path, *arguments: str, awaited: bool) -> subprocess.CompletedProcess[str]:
    """Run a program that connects with the blocking client, or with the asyncio client in its shape."""
    script = directory / "program.py"
    script.write_text(PREAMBLE + (AWAITED if awaited else "") + textwrap.dedent(source))
    return subprocess.run(
        [sys.executable, "-X", "faulthandler", str(script), *arguments],
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )
