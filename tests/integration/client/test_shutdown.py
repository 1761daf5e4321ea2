"""A client that is shut down leaves nothing waiting: each send ends, and each callback is called once."""

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
    """Makes a `Sending`."""
    factories = (pulsar_broker_factory, pulsar_client_factory, pulsar_fault_proxy, pulsar_topic_factory)
    return lambda kind: Sending(factories, kind)


@pytest.mark.core
@pytest.mark.parametrize("kind", KINDS)
def test_shutdown_ends_everything_that_waits(sending, kind):
    """On a frozen link, sends, flushes and those who wait for room raise AlreadyClosed, and callbacks report it."""
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
    if kind != "official partitions":  # whose flush says what one of the partitions says
        assert one.ended == {"AlreadyClosed": 6, "returned": 1}
    assert one.each_outcome_once()
    assert {result for [result] in one.outcomes.values()} == {pulsar.Result.AlreadyClosed}
    with pytest.raises(pulsar.AlreadyClosed):
        one.producer.send(one.content)


@pytest.mark.parametrize(
    ("kind", "call"),
    [
        *((kind, "send") for kind in KINDS),
        *product(["batched", "partitions, full", "dedup, full", "chunked, full"], ["send_many", "flush", "send_async"]),
        *product(["direct, full"], ["send_many", "flush"]),  # no signal reaches who waits for room in the C++ client
    ],
)
def test_a_signals_handler_may_shut_down_what_it_interrupts(sending, kind, call):
    """The thread that waits is the one whose handler shuts down: its call ends all the same."""
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
    assert one.each_outcome_once()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if not kind.startswith("official")])
def test_awaited_sends_end_with_a_shutdown(sending, kind):
    """Awaited sends, those that wait for room and flushes raise AlreadyClosed; nothing is left in the loop."""
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
def test_an_end_at_any_moment_leaves_nobody_waiting(sending, kind):
    """Beside threads that send, flush and open producers in a loop, a close or a shutdown after a random delay ends.

    So do the threads; each callback is called once; and no thread of the library is left but the one that stays. Not so
    where the C++ client opens partitions when they are first needed: it forgets a message that waits for one.
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
    assert one.each_outcome_once(), f"{end} after {delay:.3f} s"
    one.client.close()
    assert eventually(lambda: not [thread.name for thread in threading.enumerate() if is_left_over(thread)])


def is_left_over(thread):
    """Whether it is a thread of the library that should be gone."""
    return thread.name.startswith(("pulsar_ext-", "pulsar-ext-")) and thread.name != "pulsar_ext-batches"


@pytest.mark.parametrize("link", ["up", "frozen"])
def test_a_program_that_ends_behind_a_shutdown_ends_cleanly(program, link):
    """The status is the program's own, and every callback was called, though the broker may not have answered."""
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
