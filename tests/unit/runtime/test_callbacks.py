"""The guard around the application's callbacks."""

from __future__ import annotations

import threading

import pytest

from pulsar_ext._runtime.callbacks import CallbackGuard
from pulsar_ext.errors import InvalidUse


def on_another_thread(call):
    """Call a function on another thread."""
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()


def test_waiting_calls_raise_inside_send_callbacks():
    """A waiting call raises on the callback's thread, while the callback runs, and for that client only."""
    guard, other, called = CallbackGuard(), CallbackGuard(), []

    def callback():
        with pytest.raises(InvalidUse, match="send inside a send callback"):
            guard.raise_inside("send")
        other.raise_inside("send")
        on_another_thread(lambda: guard.raise_inside("send"))
        called.append(True)

    guard.run(callback)
    guard.raise_inside("send")
    assert called


def test_nested_callback_keeps_the_thread_tracked():
    """The thread stays tracked when an inner callback returns, as the outer one is still running."""
    guard = CallbackGuard()

    def outer():
        guard.run(lambda: None)
        guard.reporter({7: lambda *_: None}, lambda inner: inner, ())(7, None, None)
        with pytest.raises(InvalidUse):
            guard.raise_inside("flush")

    guard.run(outer)


def test_raising_callback_is_logged_and_untracked(caplog):
    """An exception of a callback is logged, and does not reach the C++ client."""
    guard = CallbackGuard()
    guard.reporter({7: lambda *_: 1 / 0}, lambda inner: inner, ())(7, "Ok", None)
    guard.raise_inside("send")
    assert "the result of its message was Ok" in caplog.text


def test_callback_of_a_rejected_message_may_wait():
    """The callback of a message rejected inside its own send runs on an untracked thread, so it may wait."""
    guard, results = CallbackGuard(), []

    def callback(result, message_id):
        guard.raise_inside("send")
        results.append((result, message_id))

    guard.reporter({0: callback}, str, [threading.get_ident()])(0, "AlreadyClosed", 7)
    assert results == [("AlreadyClosed", "7")]
