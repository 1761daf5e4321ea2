"""The asyncio programs in examples/ work."""

import asyncio
import importlib.util
from pathlib import Path
from types import SimpleNamespace

import pytest
from chunked import eventually

import pulsar_ext as pulsar

pytestmark = pytest.mark.standalone_only("runs an example, which takes a URL, and no certificates", ways=("mtls",))

_EXAMPLES = Path(__file__).parents[3] / "examples"


def _load(name):
    spec = importlib.util.spec_from_file_location(name, _EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def backlog(admin, topic):
    """Return the number of entries that the worker has not acknowledged."""
    return admin.stats(topic, precise_backlog=True).subscriptions["billing"].backlog_entries


def test_example_service_and_worker(broker, client, admin, pulsar_topic_factory):
    """The worker turns each order of the service into an invoice and empties the backlog."""
    orders, invoices = pulsar_topic_factory(broker=broker), pulsar_topic_factory(broker=broker)
    service, worker = _load("async_service"), _load("async_worker")
    written = client.subscribe(invoices, "s")

    async def steps():
        state, until = SimpleNamespace(), asyncio.Event()
        async with service.events(state, broker.service_url, orders):
            ids = await asyncio.gather(*(state.publish(b"%d" % number) for number in range(100)))
        working = asyncio.create_task(worker.work(broker.service_url, orders, invoices, until=until))
        found = await asyncio.to_thread(lambda: [written.receive(10_000) for _ in range(100)])
        # An invoice can be read before the worker knows that it is persisted, so acknowledgements may be pending.
        billed = await asyncio.to_thread(eventually, lambda: not backlog(admin, orders))
        until.set()
        await working
        return ids, found, billed

    ids, found, billed = asyncio.run(steps())
    assert billed
    assert len(set(ids)) == 100
    assert sorted(message.data() for message in found) == sorted(b"invoice for %d" % number for number in range(100))
    with client.subscribe(orders, "billing", pulsar.ConsumerType.Shared) as again, pytest.raises(pulsar.Timeout):
        again.receive(500)
