"""The way of messages from the C++ client's threads to awaiting callers, without a broker."""

import asyncio
import contextlib
import pickle
import queue
import threading

import pulsar
import pulsar.asyncio
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pulsar_ext.asyncio
from pulsar_ext.asyncio._blocking_receiver import Asking
from pulsar_ext.asyncio._loop_bridge import Mailbox
from pulsar_ext.asyncio._receive_queue import Feed
from pulsar_ext.asyncio.errors import awaited
from pulsar_ext.errors import InvalidUse
from pulsar_ext.receive.order import Transition

_OK = pulsar.Result.Ok


class Source:
    """Stands for the C++ client: answers what is asked for as messages come, oldest question first."""

    def __init__(self):
        self.stored, self.asked = [], []

    def ask(self, answer):
        if self.stored:
            answer(_OK, self.stored.pop(0))
        else:
            self.asked.append(answer)

    def come(self, message):
        if self.asked:
            self.asked.pop(0)(_OK, message)
        else:
            self.stored.append(message)


@given(st.lists(st.sampled_from(["wait", "cancel", "come", "turn"]), max_size=60))
def test_nothing_is_lost_to_a_cancellation(steps):
    """Whatever callers wait, are cancelled and are answered in whatever order: each message is taken once, in order."""

    async def drive():
        source = Source()
        feed = Feed(source.ask)
        waiting, taken, sent = [], [], 0

        async def take():
            taken.append(await feed.next())

        for step in steps:
            if step == "wait":
                waiting.append(asyncio.create_task(take()))
            elif step == "cancel" and waiting:
                waiting.pop(len(waiting) // 2).cancel()
            elif step == "come":
                source.come(sent)
                sent += 1
            else:
                await asyncio.sleep(0)
        for _ in range(5):
            await asyncio.sleep(0)
        for one in waiting:
            one.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        while len(taken) < sent:
            taken.append(await asyncio.wait_for(feed.next(), 1))
        assert taken == list(range(sent))

    asyncio.run(drive())


def test_first_come_first_served():
    """Callers get messages in the order in which they began to wait, also when one of them is cancelled when woken."""

    async def drive():
        source = Source()
        feed = Feed(source.ask)
        callers = [asyncio.create_task(feed.next()) for _ in range(4)]
        await asyncio.sleep(0)
        for number in range(3):
            source.come(number)
        await asyncio.sleep(0)  # the mailbox wakes three of them
        callers[1].cancel()
        await asyncio.wait([callers[3]], timeout=1)
        done = await asyncio.gather(*callers, return_exceptions=True)
        assert [one if isinstance(one, int) else type(one).__name__ for one in done] == [0, "CancelledError", 1, 2]

    asyncio.run(drive())


def test_an_end_reaches_everybody():
    """Closing ends every wait, and what has come before can still be taken."""

    async def drive():
        source = Source()
        feed = Feed(source.ask)
        callers = [asyncio.create_task(feed.next()) for _ in range(3)]
        await asyncio.sleep(0)
        feed.close()
        for one in await asyncio.gather(*callers, return_exceptions=True):
            assert isinstance(one, pulsar.AlreadyClosed)
            assert isinstance(one, pulsar.asyncio.PulsarException)
            assert one.error() == pulsar.Result.AlreadyClosed

    asyncio.run(drive())


def test_a_loop_gets_to_do_something_else():
    """A caller that always finds a message lets other tasks run now and then."""

    async def drive():
        source = Source()
        source.stored = list(range(1000))
        feed = Feed(source.ask)
        turns = 0

        async def count():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        other = asyncio.create_task(count())
        for _ in range(1000):
            await feed.next()
        other.cancel()
        assert turns >= 10

    asyncio.run(drive())


def test_a_closed_loop_takes_no_mail():
    """What a thread posts to a loop that is closed vanishes without an error on that thread."""
    loop = asyncio.new_event_loop()
    box = Mailbox(loop)
    loop.close()
    box.post(print, "never")


def test_errors_belong_to_both_worlds():
    """An official error is caught by either client's classes, keeps its own class and text, and can be pickled."""
    with pytest.raises(pulsar.ConsumerBusy) as caught, awaited():
        raise pulsar.ConsumerBusy("Pulsar error: ConsumerBusy")
    error = pickle.loads(pickle.dumps(caught.value))
    for kind in (pulsar.PulsarException, pulsar.asyncio.PulsarException, pulsar_ext.asyncio.PulsarException):
        assert isinstance(error, kind)
    assert (error.error(), "Pulsar error: ConsumerBusy" in str(error)) == (pulsar.Result.ConsumerBusy, True)
    with pytest.raises(InvalidUse), awaited():
        raise InvalidUse("ours stay as they are")


def test_an_error_is_raised_once_in_its_place():
    """What came before it is taken first, taking what is here ends before it, and the next call is beyond it."""

    async def steps():
        source = Source()
        feed = Feed(source.ask)
        feed.give([1, KeyError("two"), 3])
        assert [await feed.next(), feed.take()] == [1, None]
        with pytest.raises(KeyError):
            await feed.next()
        assert await feed.next() == 3
        waiting = asyncio.ensure_future(feed.next())
        await asyncio.sleep(0)
        source.asked.pop(0)(pulsar.Result.Timeout, None)
        with pytest.raises(pulsar.Timeout):
            await waiting
        source.come(4)
        assert await feed.next() == 4
        feed.give([5])
        feed.close()
        with pytest.raises(pulsar.AlreadyClosed):
            await feed.next()

    asyncio.run(steps())


@pytest.mark.parametrize("transition", Transition)
def test_what_came_is_dropped_if_it_comes_again(transition):
    """A seek, a redelivery and a cursor that was reset drop what came; an end that may fail does not."""
    feed = Feed(Source().ask)
    feed.give([1])
    feed.before(transition)
    assert feed.holds is not transition.brings_back


def test_a_blocking_receive_answers_one_request_after_the_other():
    """In the order of what it gives, whatever that is, on a thread that does not hold up the end of the process."""
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

    asking = Asking(receive)
    for _ in range(5):
        asking(lambda result, came: answers.put((result, came)))
    first, second, third, fourth, fifth = (answers.get(timeout=20) for _ in range(5))
    assert (first, second) == ((_OK, 1), (_OK, 2))
    assert isinstance(third[0], KeyError)
    assert isinstance(fourth[0], pulsar.Timeout)
    assert isinstance(fourth[0], pulsar.asyncio.PulsarException)
    assert fifth == (pulsar.Result.AlreadyClosed, None)
    assert all(thread.daemon for thread in threads)
