"""Worker that handles several orders of one topic concurrently, and writes invoices to another.

    python examples/async_worker.py pulsar://localhost:6650 orders invoices

An order is acknowledged when its invoice is persisted. An order that fails before that is redelivered, so an invoice
may be written twice, and none is missing. On Ctrl-C the worker writes the invoices it has begun, and leaves the other
orders to the next worker.
"""

from __future__ import annotations

import asyncio
import signal
import sys

import pulsar_ext as pulsar
import pulsar_ext.asyncio

CONCURRENCY = 50


async def work(service_url: str, orders: str, invoices: str, *, until: asyncio.Event) -> None:
    """Work until an event is set."""
    async with pulsar.asyncio.Client(service_url) as client:
        producer = await client.create_producer(invoices)
        consumer = await client.subscribe(
            orders,
            "billing",
            consumer_type=pulsar.ConsumerType.Shared,
            initial_position=pulsar.InitialPosition.Earliest,
        )

        async def bill(order: pulsar.Message) -> None:
            await producer.send(b"invoice for " + order.data(), properties={"order": str(order.message_id())})

        working = asyncio.create_task(consumer.process(bill, concurrency=CONCURRENCY))
        await until.wait()
        consumer.stop_processing()
        await working


async def main(service_url: str, orders: str, invoices: str) -> None:
    """Work until Ctrl-C or a termination."""
    until = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, until.set)
    await work(service_url, orders, invoices, until=until)


if __name__ == "__main__":
    if len(sys.argv) != 4:  # noqa: PLR2004  # the broker and two topics
        sys.exit(__doc__)
    asyncio.run(main(*sys.argv[1:]))
