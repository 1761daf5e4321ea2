"""Messages get from the C++ client's threads to awaiting callers; no broker is needed."""

import asyncio
import contextlib
import pickle
import queue
import threading
from operator import attrgetter

import pulsar
import pulsar.asyncio
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pulsar_ext.asyncio
from pulsar_ext.asyncio._executor import LoopBridge
from pulsar_ext.asyncio._receiving import BlockingReceiver, ReceiveQueue
from pulsar_ext.asyncio.errors import translating
from pulsar_ext.errors import InvalidUse
from pulsar_ext.receive.order import Transition

_OK = pulsar.Result.Ok


class Source:
    """Stub of the C++ client that answers requests in the order of messages."""

    def __init__(self):
        self.stored, self.requests = [], []

    def receive_async(self, callback):
        if self.stored:
            callback(_OK, self.stored.pop(0))
        else:
            self.requests.append(callback)

    def fetch(self):
        fetched, self.stored = self.stored[:2], self.stored[2:]
        return iter(fetched)

    def deliver(self, message):
        if self.requests:
            self.requests.pop(0)(_OK, message)
        else:
            self.stored.append(message)


@given(st.lists(st.sampled_from(["wait", "cancel", "deliver", "pause", "resume", "turn"]), max_size=60), st.booleans())
def test_nothing_is_lost_to_a_cancellation(steps, fetches):  # one branch a kind of step
    """Each message is taken once and in order, however callers wait, are cancelled, paused and answered."""

    async def drive():
        source = Source()
        messages = ReceiveQueue(source, attrgetter("receive_async"), fetch=source.fetch if fetches else None)
        waiting, taken, sent = [], [], 0

        async def take():
            taken.append(await messages.get())

        for step in steps:
            if step == "wait":
                waiting.append(asyncio.create_task(take()))
            elif step == "cancel" and waiting:
                waiting.pop(len(waiting) // 2).cancel()
            elif step == "deliver":
                source.deliver(sent)
                sent += 1
            elif step in ("pause", "resume"):
                getattr(messages, step)()
            else:
                await asyncio.sleep(0)
        messages.resume()
        await asyncio.sleep(0.001)
        for one in waiting:
            one.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        while len(taken) < sent:
            taken.append(await asyncio.wait_for(messages.get(), 1))
        assert taken == list(range(sent))

    asyncio.run(drive())


def test_first_come_first_served():
    """Callers get messages in the order in which they began to wait, also when one is cancelled after it was woken."""

    async def drive():
        source = Source()
        messages = ReceiveQueue(source, attrgetter("receive_async"))
        callers = [asyncio.create_task(messages.get()) for _ in range(4)]
        await asyncio.sleep(0)
        for number in range(3):
            source.deliver(number)
        await asyncio.sleep(0)  # the bridge wakes three of them
        callers[1].cancel()
        await asyncio.wait([callers[3]], timeout=1)
        done = await asyncio.gather(*callers, return_exceptions=True)
        assert [one if isinstance(one, int) else type(one).__name__ for one in done] == [0, "CancelledError", 1, 2]

    asyncio.run(drive())


def test_new_caller_takes_no_reserved_message():
    """A caller that begins after two messages arrived, and before the first caller runs, gets the second message."""

    async def drive():
        source = Source()
        messages = ReceiveQueue(source, attrgetter("receive_async"))
        first, second = (asyncio.create_task(messages.get()) for _ in range(2))
        await asyncio.sleep(0)
        source.deliver(0)
        source.deliver(1)
        second.cancel()
        assert await asyncio.gather(messages.get(), first) == [1, 0]

    asyncio.run(drive())


def test_close_ends_all_waiting_callers():
    """Every waiting caller gets AlreadyClosed when the queue is closed."""

    async def drive():
        source = Source()
        messages = ReceiveQueue(source, attrgetter("receive_async"))
        callers = [asyncio.create_task(messages.get()) for _ in range(3)]
        await asyncio.sleep(0)
        messages.close()
        for one in await asyncio.gather(*callers, return_exceptions=True):
            assert isinstance(one, pulsar.AlreadyClosed)
            assert isinstance(one, pulsar.asyncio.PulsarException)
            assert one.error() == pulsar.Result.AlreadyClosed

    asyncio.run(drive())


def test_other_tasks_run_between_messages():
    """A caller that always finds a message lets other tasks run from time to time."""

    async def drive():
        source = Source()
        source.stored = list(range(1000))
        messages = ReceiveQueue(source, attrgetter("receive_async"))
        turns = 0

        async def count():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        other = asyncio.create_task(count())
        for _ in range(1000):
            await messages.get()
        other.cancel()
        assert turns >= 10

    asyncio.run(drive())


def test_call_for_a_closed_loop_is_dropped():
    """A call for a closed loop is dropped without an error on the calling thread."""
    loop = asyncio.new_event_loop()
    bridge = LoopBridge(loop)
    loop.close()
    bridge.call_soon(print, "never")


def test_message_of_a_closed_loop_goes_to_the_next_caller():
    """A message reserved for a caller whose loop was closed goes to the next caller, on another loop."""
    source = Source()
    messages = ReceiveQueue(source, attrgetter("receive_async"))
    loop = asyncio.new_event_loop()
    abandoned = loop.create_task(messages.get())
    loop.run_until_complete(asyncio.sleep(0))
    loop.call_soon(loop.stop)
    source.deliver(1)
    loop.run_forever()
    loop.close()
    assert not abandoned.done()
    abandoned._log_destroy_pending = False

    async def take():
        return await asyncio.wait_for(messages.get(), 5)

    assert asyncio.run(take()) == 1


def test_errors_belong_to_both_clients():
    """A translated error is caught by either client's classes, keeps its class and text, and can be pickled."""
    with pytest.raises(pulsar.ConsumerBusy) as caught, translating():
        raise pulsar.ConsumerBusy("Pulsar error: ConsumerBusy")
    error = pickle.loads(pickle.dumps(caught.value))
    for kind in (pulsar.PulsarException, pulsar.asyncio.PulsarException, pulsar_ext.asyncio.PulsarException):
        assert isinstance(error, kind)
    assert (error.error(), "Pulsar error: ConsumerBusy" in str(error)) == (pulsar.Result.ConsumerBusy, True)
    with pytest.raises(InvalidUse), translating():
        raise InvalidUse("this library's errors are not translated")


def test_error_is_raised_once_in_order():
    """An error is raised once, after the messages before it, and the next call continues."""

    async def steps():
        source = Source()
        messages = ReceiveQueue(source, attrgetter("receive_async"))
        messages.put([1, KeyError("two"), 3])
        assert [await messages.get(), messages.get_ready()] == [1, None]
        with pytest.raises(KeyError):
            await messages.get()
        assert await messages.get() == 3
        waiting = asyncio.ensure_future(messages.get())
        await asyncio.sleep(0)
        source.requests.pop(0)(pulsar.Result.Timeout, None)
        with pytest.raises(pulsar.Timeout):
            await waiting
        source.deliver(4)
        assert await messages.get() == 4
        messages.put([5])
        messages.close()
        with pytest.raises(pulsar.AlreadyClosed):
            await messages.get()

    asyncio.run(steps())


@pytest.mark.parametrize("transition", Transition)
def test_arrived_messages_are_dropped_if_redelivered(transition):
    """A seek, a redelivery and a cursor reset drop arrived messages when they complete, not when they are abandoned."""
    messages = ReceiveQueue(Source(), attrgetter("receive_async"))
    messages.put([1])
    messages.on_before(transition)
    messages.on_abandon(transition)
    assert messages.has_ready
    messages.on_before(transition)
    messages.on_after(transition)
    assert messages.has_ready is not transition.redelivers


def test_blocking_receiver_answers_in_order():
    """A blocking receiver answers requests in order, with messages or errors, on a daemon thread."""
    given = iter([1, 2, KeyError("three"), pulsar.Timeout("four"), pulsar.AlreadyClosed("five")])
    running, threads, answers = threading.Lock(), set(), queue.Queue()

    def receive():
        threads.add(threading.current_thread())
        with contextlib.ExitStack() as alone:
            assert running.acquire(blocking=False)
            alone.callback(running.release)
            one = next(given)
            if isinstance(one, Exception):
                raise one
            return one

    receiver = BlockingReceiver(receive)
    for _ in range(5):
        receiver.receive_async(lambda result, received: answers.put((result, received)))
    first, second, third, fourth, fifth = (answers.get(timeout=20) for _ in range(5))
    assert (first, second) == ((_OK, 1), (_OK, 2))
    assert isinstance(third[0], KeyError)
    assert isinstance(fourth[0], pulsar.Timeout)
    assert isinstance(fourth[0], pulsar.asyncio.PulsarException)
    assert fifth == (pulsar.Result.AlreadyClosed, None)
    assert all(thread.daemon for thread in threads)


@pytest.mark.parametrize("transition", [Transition.REDELIVERY, Transition.UNSUBSCRIPTION])
def test_message_redelivered_during_a_redelivery_is_kept(transition):
    """A redelivery drops the messages that had arrived before it, and keeps those that arrive during the call."""

    async def drive():
        source = Source()
        messages = ReceiveQueue(source, attrgetter("receive_async"))
        for _ in range(2):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(messages.get(), 0.001)
        messages.put(["before"])
        messages.on_before(transition)
        source.deliver("during")
        messages.on_after(transition)
        kept = ["during"] if transition.redelivers else ["before", "during"]
        assert [await asyncio.wait_for(messages.get(), 1) for _ in kept] == kept

    asyncio.run(drive())
