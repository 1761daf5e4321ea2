"""Calls that are cancelled from another thread while they wait for the C++ client."""

from __future__ import annotations

from concurrent.futures import CancelledError, ThreadPoolExecutor
from threading import Event

import pulsar
import pytest

from pulsar_ext._native.answer import Answer
from pulsar_ext._runtime.ending import CancellableCall, OpenSenders


class Opened:
    """Notes how often it is closed, and whether a thread waits for that."""

    def __init__(self):
        self.closed = []

    def close_async(self, _):
        self.closed.append("async")

    def close(self):
        self.closed.append("waiting")


def test_a_cancelled_call_stops_waiting_for_its_answer():
    """A call that waits for an answer that never comes raises CancelledError as soon as it is cancelled."""
    waits = Event()
    call = CancellableCall(lambda: OpenSenders().ask(lambda _: waits.set()))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(call)
        assert waits.wait(20)
        call.cancel()
        with pytest.raises(CancelledError):
            waiting.result(20)


def test_a_call_cancelled_before_asks_for_nothing():
    """A call that is cancelled between two questions raises CancelledError without asking the second one."""
    senders, asked = OpenSenders(), []

    def ask(answer):
        asked.append(answer)
        answer(pulsar.Result.Ok)

    def ask_twice():
        senders.ask(ask)
        call.cancel()
        senders.ask(ask)

    call = CancellableCall(ask_twice)
    with pytest.raises(CancelledError):
        call()
    assert len(asked) == 1
    assert senders.ask(ask) is None  # behind it, on the same thread, nothing is cancelled


def test_what_comes_for_an_unwanted_answer_is_closed():
    """What the C++ client opens after its answer was given up and found unwanted is closed without a wait."""
    answer, opened = Answer(), Opened()
    answer.give_up(CancelledError())
    answer.close_again()
    answer(pulsar.Result.Ok, opened)
    assert opened.closed == ["async"]


def test_what_came_before_it_was_unwanted_is_closed():
    """What the C++ client opens between giving up and finding the answer unwanted is closed as well."""
    answer, opened = Answer(), Opened()
    answer.give_up(CancelledError())
    answer(pulsar.Result.Ok, opened)
    answer.close_again()
    assert opened.closed == ["waiting"]
