"""A closed asyncio client leaks no threads."""

from __future__ import annotations

import subprocess
import sys

import pytest
from reach import IMPORTED, Reach

_PROGRAM = f"""{IMPORTED}
import asyncio, gc, os, sys, time
import pulsar_ext, pulsar_ext.asyncio

def count():
    gc.collect()
    return len(os.listdir("/proc/self/task"))

async def session(reach, topic):
    logger = pulsar_ext.ConsoleLogger(pulsar_ext.LoggerLevel.Error)
    client = pulsar_ext.asyncio.Client(reach.service_url, logger=logger, **reach.options())
    consumer = await client.subscribe(topic, "s")
    waiting = [asyncio.ensure_future(consumer.receive()) for _ in range(50)]
    await asyncio.sleep(0.05)
    await client.close()
    ends = await asyncio.gather(*waiting, return_exceptions=True)
    assert {{type(end).__name__ for end in ends}} == {{"AlreadyClosed"}}, ends

before = count()
for _ in range(15):
    asyncio.run(session(Reach.unpack(sys.argv[1]), sys.argv[2]))
deadline = time.monotonic() + 10
while count() > before and time.monotonic() < deadline:
    time.sleep(0.1)
print(count() - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts its threads under /proc")
def test_closing_with_waiting_receives_leaks_no_threads(pulsar_broker, pulsar_topic):
    """Fifteen clients that are closed with fifty waiting receives each leave no C++ threads."""
    command = [sys.executable, "-c", _PROGRAM, Reach.of(pulsar_broker).pack(), pulsar_topic]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.splitlines()[-1:] == ["0"], done.stderr[-2000:]
