"""The guard around the application's callbacks."""

from __future__ import annotations

import threading

import pytest

from pulsar_ext._runtime.callbacks import CallbackGuard
from pulsar_ext.errors import InvalidUse


def on_another_thread(call):
    """Call something on a thread of its own."""
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()


def test_what_would_wait_is_refused_where_callbacks_run():
    """On that thread, as long as they run, and for that client only."""
    guard, other, refused = CallbackGuard(), CallbackGuard(), []

    def callback():
        with pytest.raises(InvalidUse, match="send inside a send callback"):
            guard.refuse("send")
        other.refuse("send")
        on_another_thread(lambda: guard.refuse("send"))
        refused.append(True)

    guard.run(callback)
    guard.refuse("send")
    assert refused


def test_a_callback_inside_a_callback_leaves_the_thread_noted():
    """The outer one still runs when the inner one has returned."""
    guard = CallbackGuard()

    def outer():
        guard.run(lambda: None)
        guard.guarded(lambda *_: None, lambda inner: inner, ())(None, None)
        with pytest.raises(InvalidUse):
            guard.refuse("flush")

    guard.run(outer)


def test_a_callback_that_raises_is_logged_and_leaves_nothing_noted(caplog):
    """The C++ client must not hear of it."""
    guard = CallbackGuard()
    guard.guarded(lambda *_: 1 / 0, lambda inner: inner, ())("Ok", None)
    guard.refuse("send")
    assert "the result of its message was Ok" in caplog.text


def test_a_message_that_is_refused_at_once_is_reported_where_waiting_is_fine():
    """Its sender's own thread, inside its own send."""
    guard, heard = CallbackGuard(), []

    def callback(result, message_id):
        guard.refuse("send")
        heard.append((result, message_id))

    guard.guarded(callback, str, [threading.get_ident()])("AlreadyClosed", 7)
    assert heard == [("AlreadyClosed", "7")]
