"""Consumers that prefetch messages, and interrupted fetches."""

from __future__ import annotations

import dis
import sys
from collections import deque
from contextlib import contextmanager
from itertools import cycle, islice, pairwise

import pulsar
import pytest

from pulsar_ext._native.core import IS_USED
from pulsar_ext.message import Received, received
from pulsar_ext.receive import prefetch as ahead_module
from pulsar_ext.receive.prefetch import Prefetch, prefetch_size
from pulsar_ext.receive.source import NativeSource

ARGUMENTS = {
    "receiver_queue_size": 1_000,
    "batch_receive_policy": None,
    "message_listener": None,
    "unacked_messages_timeout_ms": None,
    "dead_letter_policy": None,
}


@pytest.mark.parametrize(("queue", "at_once"), [(200, 50), (401, 100), (1_000, 250), (1_600, 400), (100_000, 400)])
def test_fetch_takes_at_most_a_quarter_of_the_queue(monkeypatch, queue, at_once):
    """A fetch takes at most a quarter of the queue, and never more than 400 messages; none without the native core."""
    for is_used in (True, False):
        monkeypatch.setattr(ahead_module, "IS_USED", is_used)
        assert prefetch_size(ARGUMENTS | {"receiver_queue_size": queue}, screens=False) == at_once * is_used


@pytest.mark.parametrize(
    "changed",
    [
        {"receiver_queue_size": 199},
        {"receiver_queue_size": 0},
        {"receiver_queue_size": "many"},
        {"batch_receive_policy": pulsar.ConsumerBatchReceivePolicy(10, -1, 100)},
        {"message_listener": print},
        {"unacked_messages_timeout_ms": 10_000},
        {"dead_letter_policy": pulsar.ConsumerDeadLetterPolicy(3)},
    ],
)
def test_prefetch_is_off_for_timeouts_and_screens(monkeypatch, changed):
    """Nothing is prefetched with a small queue, a policy, a listener, a timeout, dead letters or a screen."""
    monkeypatch.setattr(ahead_module, "IS_USED", True)
    assert not prefetch_size(ARGUMENTS | changed, screens=False)
    assert not prefetch_size(ARGUMENTS, screens=True)


class _Queue:
    """The queue of a C++ consumer."""

    def __init__(self, count):
        self.left, self.fetches = deque(range(count)), 0

    def wait(self, _):
        if not self.left:
            raise pulsar.Timeout
        return self.left.popleft()

    def fetch(self, most):
        self.fetches += 1
        return [received(self.left.popleft()) for _ in range(min(most, len(self.left)))]


def _take(ahead, count, turns):
    """Receive a number of messages, and continue after a Ctrl-C."""
    got, quick = [], iter(())
    for turn in islice(turns, 10_000):
        before = len(got)
        try:
            got.extend(ahead.available_messages(70) if turn else islice(quick, 30))
            if len(got) == before:
                quick = ahead.next_messages()
        except KeyboardInterrupt:
            continue
        if len(got) >= count:
            break
    return got


@contextmanager
def _ctrl_c(at):
    """Interrupt `prefetch.py` at the n-th point where Python checks for signals; yield the count of points."""
    passed, checks = [0], {}

    def on_opcode(frame, event, _):
        if event == "opcode":
            code = frame.f_code
            if code not in checks:
                names = [(one.offset, one.opname) for one in dis.get_instructions(code)]
                checks[code] = {
                    offset
                    for (_, before), (offset, _) in pairwise(names)
                    if before.startswith(("CALL", "JUMP_BACKWARD"))
                }
            if frame.f_lasti in checks[code]:
                passed[0] += 1
                if passed[0] == at:
                    raise KeyboardInterrupt
        return on_opcode

    def on_call(frame, *_):
        if frame.f_code.co_filename != ahead_module.__file__:
            return None
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        return on_opcode

    before = sys.gettrace()
    sys.settrace(on_call)
    try:
        yield passed
    finally:
        sys.settrace(before)


@pytest.mark.skipif(not IS_USED, reason="messages are prefetched by the native core only")
@pytest.mark.parametrize("turns", [(0,), (1,), (0, 0, 1)])
def test_ctrl_c_during_a_fetch_loses_no_message(monkeypatch, turns):
    """Interrupted once at each point where Python checks for signals, all messages arrive, in order."""
    count, interrupted = 1_500, 0
    monkeypatch.setattr(ahead_module, "drain", lambda _, most, __, queue: queue.fetch(most))
    monkeypatch.setattr(ahead_module, "_FAST_SECONDS", 1.0)
    while True:
        queue = _Queue(count)
        ahead = Prefetch(queue, NativeSource(queue, lambda queue: queue.wait), Received, 100)
        with _ctrl_c(interrupted + 1) as passed:
            got = _take(ahead, count, cycle(turns))
        assert [message.inner for message in got] == list(range(count))
        assert queue.fetches
        if passed[0] <= interrupted:
            break
        interrupted += 1
    assert interrupted > 50
