"""Calls that are cancelled from another thread while they wait for the C++ client."""

from __future__ import annotations

from concurrent.futures import CancelledError, ThreadPoolExecutor
from threading import Event

import pulsar
import pytest

from pulsar_ext._native.answer import Answer
from pulsar_ext._runtime.ending import CancellableCall, OpenSenders


class Opened:
    """Notes its closes, and whether each waits."""

    def __init__(self):
        self.closed = []

    def close_async(self, _):
        self.closed.append("async")

    def close(self):
        self.closed.append("waiting")


def test_cancelled_call_stops_waiting():
    """A call that waits for an answer that never arrives raises CancelledError once it is cancelled."""
    waits = Event()
    call = CancellableCall(lambda: OpenSenders().ask(lambda _: waits.set()))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(call)
        assert waits.wait(20)
        call.cancel()
        with pytest.raises(CancelledError):
            waiting.result(20)


def test_cancelled_call_begins_no_request():
    """A call that is cancelled between two requests raises CancelledError without beginning the second one."""
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
    assert senders.ask(ask) is None  # later calls on this thread are not cancelled


def test_late_handle_of_an_abandoned_answer_is_closed():
    """A handle that the C++ client opens after its answer was abandoned is closed without waiting."""
    answer, opened = Answer(), Opened()
    answer.give_up(CancelledError())
    answer.close_abandoned()
    answer(pulsar.Result.Ok, opened)
    assert opened.closed == ["async"]


def test_early_handle_of_an_abandoned_answer_is_closed():
    """A handle that the C++ client opens between giving up and abandoning the answer is closed as well."""
    answer, opened = Answer(), Opened()
    answer.give_up(CancelledError())
    answer(pulsar.Result.Ok, opened)
    answer.close_abandoned()
    assert opened.closed == ["waiting"]
