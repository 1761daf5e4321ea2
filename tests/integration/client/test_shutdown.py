"""A shutdown ends every send, and each callback is called once."""

from __future__ import annotations

import asyncio
import random
import signal
import threading
import time
from itertools import product

import pytest
from chunked import eventually
from sending import KINDS, WAIT_SECONDS, Sending

import pulsar_ext as pulsar
import pulsar_ext.asyncio

pytestmark = pytest.mark.filterwarnings("ignore::pulsar_ext.MixedKeyBatchWarning")


@pytest.fixture
def sending(pulsar_broker_factory, pulsar_client_factory, pulsar_fault_proxy, pulsar_topic_factory):
    """Return a function that makes a `Sending`."""
    factories = (pulsar_broker_factory, pulsar_client_factory, pulsar_fault_proxy, pulsar_topic_factory)
    return lambda kind: Sending(factories, kind)


@pytest.mark.core
@pytest.mark.parametrize("kind", KINDS)
def test_shutdown_ends_all_waiting_calls(sending, kind):
    """Sends, flushes and waits for room on a frozen link raise AlreadyClosed, and callbacks get it."""
    one = sending(kind)
    one.producer.send(one.content)
    one.proxy.pause()
    many = [one.content] * 3
    uses = [lambda: one.producer.send(one.content), lambda: one.producer.send_many(many), one.producer.flush]
    one.send_async()
    threads = [one.begin(use) for use in uses for _ in range(2)]
    threads += [one.begin(lambda: [one.send_async() for _ in range(6)])]
    time.sleep(0.3)
    one.client.shutdown()
    for thread in threads:
        thread.join(WAIT_SECONDS)
    assert not any(thread.is_alive() for thread in threads)
    if kind != "official partitions":  # whose flush returns the result of any partition
        assert one.ended == {"AlreadyClosed": 6, "returned": 1}
    assert one.has_each_outcome_once()
    assert {result for [result] in one.outcomes.values()} == {pulsar.Result.AlreadyClosed}
    with pytest.raises(pulsar.AlreadyClosed):
        one.producer.send(one.content)


@pytest.mark.parametrize(
    ("kind", "call"),
    [
        *((kind, "send") for kind in KINDS),
        *product(["batched", "partitions, full", "dedup, full", "chunked, full"], ["send_many", "flush", "send_async"]),
        *product(["direct, full"], ["send_many", "flush"]),  # signals do not interrupt a wait in the C++ client
    ],
)
def test_signal_handler_may_shut_down(sending, kind, call):
    """A waiting call ends if a signal handler on its thread shuts the client down."""
    one = sending(kind)
    one.proxy.pause()
    uses = {
        "send": lambda: one.producer.send(one.content),
        "send_many": lambda: one.producer.send_many([one.content] * 3),
        "flush": lambda: (one.send_async(), one.producer.flush()),
        "send_async": lambda: [one.send_async() for _ in range(6)],
    }
    before = signal.signal(signal.SIGALRM, lambda *_: one.client.shutdown())
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        if call == "send_async":
            uses[call]()
            assert eventually(lambda: one.client.is_closed)
        else:
            with pytest.raises(pulsar.AlreadyClosed):
                uses[call]()
    finally:
        signal.signal(signal.SIGALRM, before)
    assert one.has_each_outcome_once()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if not kind.startswith("official")])
def test_awaited_sends_end_with_a_shutdown(sending, kind):
    """Awaited sends, waits for room and flushes raise AlreadyClosed, and nothing remains in the loop."""
    one = sending(kind)

    async def shut_down():
        settings = {"send_timeout_millis": 0, "batching_enabled": False, **KINDS[kind]}
        for unused in ("size", "partitions"):
            settings.pop(unused, None)
        url, admin = one.proxy.service_url, one.client.context.admin_api()
        one.client.close()
        client = pulsar.asyncio.Client(url, admin=admin, **one.broker.client_options(pulsar))
        producer = await client.create_producer(one.producer.topic(), producer_name="q", **settings)
        one.proxy.pause()
        sends = [asyncio.ensure_future(producer.send(one.content)) for _ in range(6)]
        await asyncio.sleep(0.5)
        sends += [asyncio.ensure_future(producer.flush()) for _ in range(2)]
        await asyncio.sleep(0.1)
        client.shutdown()
        return await asyncio.wait_for(asyncio.gather(*sends, return_exceptions=True), WAIT_SECONDS)

    ended = asyncio.run(shut_down())
    assert [getattr(error, "error", lambda: None)() for error in ended] == [pulsar.Result.AlreadyClosed] * 8


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "official partitions"])
def test_close_at_a_random_moment_completes(sending, kind):
    """A close or shutdown at a random moment of sends, flushes and openings on several threads completes.

    The threads end, each callback is called once, and only the library's permanent thread remains. This excludes lazily
    opened partitions: the C++ client loses a message that waits for one.
    """
    one, delay = sending(kind), random.random() / 10
    end = random.choice(["close", "shutdown", "both", "producer.close"])
    calls = {
        "close": one.client.close,
        "shutdown": one.client.shutdown,
        "both": lambda: (one.begin(one.client.close), one.client.shutdown()),
        "producer.close": one.producer.close,
    }

    def open_another():
        one.client.create_producer(one.producer.topic(), batching_enabled=True).close()

    uses = [lambda: one.producer.send(one.content), lambda: one.producer.send_many([one.content] * 3), one.flush]
    uses += [one.send_async, one.send_async] + [open_another] * (end != "producer.close")
    threads = [one.begin_loop(use) for use in uses]
    time.sleep(delay)
    calls[end]()
    one.over.set()
    for thread in threads:
        thread.join(WAIT_SECONDS)
    assert not any(thread.is_alive() for thread in threads), f"{end} after {delay:.3f} s"
    assert one.has_each_outcome_once(), f"{end} after {delay:.3f} s"
    one.client.close()
    assert eventually(lambda: not [thread.name for thread in threading.enumerate() if is_left_over(thread)])


def is_left_over(thread):
    """Return whether it is a thread of the library that should have ended."""
    return thread.name.startswith(("pulsar_ext-", "pulsar-ext-")) and thread.name != "pulsar_ext-batches"


@pytest.mark.parametrize("link", ["up", "frozen"])
def test_program_exits_after_a_shutdown(program, link):
    """A program exits with its own status after a shutdown, and every callback is called without an answer."""
    done = program(
        f"""
        proxy = reach.proxy()
        client = connect(proxy.service_url)
        outcomes = []
        for batched in (False, True):
            producer = client.create_producer(topic, batching_enabled=batched, send_timeout_millis=0)
            producer.send(b"x")
            if {link == "frozen"} and batched:
                proxy.pause()
            for _ in range(100):
                producer.send_async(b"x", lambda result, _: outcomes.append(result))
        client.shutdown()
        end = time.monotonic() + 30
        while len(outcomes) < 200 and time.monotonic() < end:
            time.sleep(0.001)
        print(len(outcomes))
        sys.exit(7)
        """
    )
    assert done.returncode == 7, done.stderr
    assert done.stdout.splitlines()[-1] == "200"
