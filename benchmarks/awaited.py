"""asyncio clients: each path of `pulsar_ext.asyncio` compared with `pulsar.asyncio`, and a loop with many clients.

    python -m benchmarks.awaited [--rounds 9] [--messages 20000] [--many 1000] [--url URL --admin-url URL]

Prints the tables of RESULTS-asyncio.md.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import time
import uuid
from typing import TYPE_CHECKING, Any

import pulsar
import pulsar.asyncio

import pulsar_ext.asyncio
from benchmarks.steps import fill
from pulsar_ext.testing import PulsarProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

_QUIET = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
_PAYLOAD = b"x" * 100
_AT_ONCE = 1000
_TICK_SECONDS = 0.01

Path = "Callable[[Any, str, int], Awaitable[float]]"


async def _receive(client: Any, topic: str, count: int) -> float:
    consumer = await client.subscribe(topic, uuid.uuid4().hex, initial_position=pulsar.InitialPosition.Earliest)
    begin = time.perf_counter()
    for _ in range(count):
        await consumer.receive()
    took = time.perf_counter() - begin
    await consumer.unsubscribe()
    return took


async def _acknowledge(client: Any, topic: str, count: int) -> float:
    consumer = await client.subscribe(topic, uuid.uuid4().hex, initial_position=pulsar.InitialPosition.Earliest)
    begin = time.perf_counter()
    for _ in range(count):
        await consumer.acknowledge(await consumer.receive())
    took = time.perf_counter() - begin
    await consumer.unsubscribe()
    return took


async def _read(client: Any, topic: str, count: int) -> float:
    reader = await client.create_reader(topic, pulsar.MessageId.earliest)
    begin = time.perf_counter()
    for _ in range(count):
        await reader.read_next()
    took = time.perf_counter() - begin
    await reader.close()
    return took


async def _send(client: Any, topic: str, count: int) -> float:
    producer = await client.create_producer(f"{topic}-sent", max_pending_messages=2 * _AT_ONCE)
    begin = time.perf_counter()
    for _ in range(count // _AT_ONCE):
        await asyncio.gather(*(producer.send(_PAYLOAD) for _ in range(_AT_ONCE)))
    took = time.perf_counter() - begin
    await producer.close()
    return took


async def _send_one(client: Any, topic: str, count: int) -> float:
    producer = await client.create_producer(f"{topic}-sent", batching_enabled=False)
    begin = time.perf_counter()
    for _ in range(count // 100):
        await producer.send(_PAYLOAD)
    took = time.perf_counter() - begin
    await producer.close()
    return took * 100


_PATHS = {
    "await receive()": _receive,
    "await receive(), await acknowledge()": _acknowledge,
    "await read_next()": _read,
    "gather of 1,000 send(), batched": _send,
    "await send(), one by one": _send_one,
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--many", type=int, default=1000)
    parser.add_argument("--url", help="a running broker")
    options = parser.parse_args()
    with _broker(options.url) as url:
        topic = f"persistent://public/default/asyncio-{uuid.uuid4().hex[:8]}"
        client = pulsar.Client(url, logger=_QUIET)
        fill(client, topic, options.messages)
        client.close()
        print("| path | pulsar, us | pulsar_ext, us | ratio | quartiles |\n|---|---:|---:|---:|---:|")
        for name, path in _PATHS.items():
            print(_row(name, asyncio.run(_by_turns(url, topic, path, options))), flush=True)
        for module in (pulsar.asyncio, pulsar_ext.asyncio):
            print(asyncio.run(_many(module, url, options.many)), flush=True)


@contextlib.contextmanager
def _broker(url: str | None) -> Iterator[str]:
    if url is not None:
        yield url
        return
    with PulsarProcess() as broker:
        yield broker.service_url


async def _by_turns(url: str, topic: str, path: Any, options: argparse.Namespace) -> list[tuple[float, float]]:
    clients = [module.Client(url, logger=_QUIET) for module in (pulsar.asyncio, pulsar_ext.asyncio)]
    pairs = []
    for turn in range(options.rounds + 1):
        times = [0.0, 0.0]
        for side in (0, 1) if turn % 2 else (1, 0):
            times[side] = await path(clients[side], topic, options.messages) / options.messages
        if turn:  # the first pair warms up
            pairs.append((times[0], times[1]))
    for client in clients:
        await client.close()
    return pairs


def _row(name: str, pairs: list[tuple[float, float]]) -> str:
    ratios = [official / ours for official, ours in pairs]
    low, middle, high = statistics.quantiles(ratios, n=4)
    official, ours = (statistics.median(times) * 1e6 for times in zip(*pairs, strict=True))
    return f"| {name} | {official:.1f} | {ours:.1f} | {middle:.2f} | {low:.2f} to {high:.2f} |"


async def _many(module: Any, url: str, count: int) -> str:
    """Run `count` producers and consumers on one loop, ten messages each, and measure the delay of the loop's timer."""
    late: list[float] = []

    async def tick() -> None:
        while True:
            due = time.perf_counter() + _TICK_SECONDS
            await asyncio.sleep(_TICK_SECONDS)
            late.append(time.perf_counter() - due)

    async def pair(client: Any) -> None:
        topic = f"persistent://public/default/many-{uuid.uuid4().hex}"
        consumer = await client.subscribe(topic, "s")
        producer = await client.create_producer(topic)
        await asyncio.gather(*(producer.send(_PAYLOAD) for _ in range(10)))
        for _ in range(10):
            await consumer.acknowledge(await consumer.receive())

    begin = time.perf_counter()
    client = module.Client(url, logger=_QUIET)
    ticking = asyncio.create_task(tick())
    await asyncio.gather(*(pair(client) for _ in range(count)))
    took = time.perf_counter() - begin
    ticking.cancel()
    await client.close()
    late.sort()
    return (
        f"{module.__name__}: {count} producers and consumers, {10 * count} messages in {took:.1f} s; the loop was late "
        f"by {statistics.median(late) * 1000:.1f} ms in the median, {late[int(len(late) * 0.99)] * 1000:.0f} ms at "
        f"99 %, {late[-1] * 1000:.0f} ms at most"
    )


if __name__ == "__main__":
    main()
