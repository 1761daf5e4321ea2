"""A handler of FastStream for each message: `pulsar_ext.faststream` beside FastStream's broker for NATS.

    python -m benchmarks.handlers [--rounds 9] [--messages 5000] [--url URL]

Starts its own brokers; without nats-server on the path (Debian: `apt-get install nats-server`) it says so, and measures
Pulsar alone. One process publishes, and another one has the handler; both are fresh for each run, in turn. A figure is
the median of microseconds of processor time per message of the process. Prints the table of RESULTS-asyncio.md. Needs
the extras `faststream` and `testing`, and nats-py.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pulsar
from faststream.middlewares import AckPolicy
from pydantic import BaseModel

from benchmarks.brokers import broker_at

if TYPE_CHECKING:
    from collections.abc import Iterator

_SIDES: Final = {"nats": "NATS, not stored", "jetstream": "NATS JetStream", "pulsar": "pulsar_ext"}
_STEPS: Final = ("publish()", "a handler")
_AT_ONCE: Final = 100
"""Number of messages that are published at a time."""
_WAIT_SECONDS: Final = 120.0


class Order(BaseModel):
    """Body of a message."""

    number: int
    pieces: int


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.handlers", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9, help="runs of each broker (9)")
    parser.add_argument("--messages", type=int, default=5_000, help="messages of a run (5,000)")
    parser.add_argument("--url", nargs=1, help="a running broker of Pulsar, instead of a new one")
    options = parser.parse_args()
    figures: dict[str, list[tuple[float, ...]]] = {}
    with broker_at(options.url) as (pulsar_url, *_), _nats_server() as nats_url:
        sides = _SIDES if nats_url else ("pulsar",)
        for _ in range(options.rounds):
            for side in sides:
                url = pulsar_url if side == "pulsar" else nats_url
                figures.setdefault(side, []).append(_run(side, str(url), options.messages))
    print(f"| processor time a message, us | {' | '.join(_SIDES[side] for side in figures)} |")
    print("|---|" + "---:|" * len(figures))
    for at, step in enumerate(_STEPS):
        medians = (statistics.median(run[at] for run in runs) for runs in figures.values())
        print(f"| {step} | {' | '.join(f'{median:.0f}' for median in medians)} |")
    return 0


@contextlib.contextmanager
def _nats_server() -> Iterator[str | None]:
    """Yield the URL of a NATS server with JetStream on a free port; None if the program is not installed."""
    program = shutil.which("nats-server", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if program is None:
        print("nats-server is not on the path: NATS is not measured.", file=sys.stderr)
        yield None
        return
    with tempfile.TemporaryDirectory() as folder:
        command = [program, "-a", "127.0.0.1", "-p", "-1", "-js", "-sd", folder, "--ports_file_dir", folder]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as server:
            try:
                ports = Path(folder, f"nats-server_{server.pid}.ports")
                deadline = time.monotonic() + _WAIT_SECONDS
                while not ports.exists() and server.poll() is None and time.monotonic() < deadline:
                    time.sleep(0.05)
                yield json.loads(ports.read_text(encoding="utf-8"))["nats"][0]
            finally:
                server.terminate()


def _run(side: str, url: str, messages: int) -> tuple[float, ...]:
    """Return the microseconds per message to publish and to handle them, measured in two fresh processes."""
    arguments = side, url, f"handlers-{uuid.uuid4().hex[:8]}", messages
    publish, handle = (
        [sys.executable, "-c", f"from benchmarks.handlers import measure; measure({step!r}, *{arguments!r})"]
        for step in ("publish", "handle")
    )
    with subprocess.Popen(handle, stdout=subprocess.PIPE, text=True) as handling:
        try:
            assert handling.stdout is not None
            handling.stdout.readline()  # the handler is ready
            published = subprocess.run(publish, capture_output=True, text=True, check=True, timeout=_WAIT_SECONDS)
            handled, _ = handling.communicate(timeout=_WAIT_SECONDS)
        finally:
            handling.kill()
    return float(published.stdout), float(handled)


def measure(step: str, side: str, url: str, topic: str, messages: int) -> None:
    """Publish or handle messages, and print the microseconds of processor time of this process per message."""
    asyncio.run((_publish if step == "publish" else _handle)(side, url, topic, messages))


def _broker(side: str, url: str, topic: str) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """Return a broker without a log line per message, and the options of a publish and of a subscriber."""
    if side == "pulsar":
        from pulsar_ext.faststream import PulsarBroker  # noqa: PLC0415  # only the measured broker is imported

        quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
        return PulsarBroker(url, logger=None, client_logger=quiet), {}, {"subscription": "handling"}
    from faststream.nats import JStream, NatsBroker  # noqa: PLC0415

    broker = NatsBroker(url, logger=None)
    if side == "nats":
        return broker, {}, {}
    return broker, {"stream": topic}, {"stream": JStream(topic), "ack_policy": AckPolicy.ACK}


async def _publish(side: str, url: str, topic: str, messages: int) -> None:
    broker, options, _ = _broker(side, url, topic)
    async with broker:
        await broker.publish(Order(number=0, pieces=0), topic, **options)  # connects, and opens a producer
        began = time.process_time()
        for begin in range(0, messages, _AT_ONCE):
            orders = (Order(number=number, pieces=1) for number in range(begin, begin + _AT_ONCE))
            await asyncio.gather(*(broker.publish(order, topic, **options) for order in orders))
        spent = time.process_time() - began
    print(1e6 * spent / messages)


async def _handle(side: str, url: str, topic: str, messages: int) -> None:
    broker, _, options = _broker(side, url, topic)
    left, done = messages, asyncio.Event()

    @broker.subscriber(topic, **options)
    async def handle(order: Order) -> None:
        nonlocal left
        left -= order.pieces
        if not left:
            done.set()

    async with broker:
        await broker.start()
        print("ready", flush=True)
        began = time.process_time()
        await asyncio.wait_for(done.wait(), _WAIT_SECONDS)
        print(1e6 * (time.process_time() - began) / messages)


if __name__ == "__main__":
    sys.exit(main())
