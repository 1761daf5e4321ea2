"""Consumers that prefetch messages, and interrupted fetches."""

from __future__ import annotations

import dis
import sys
from collections import deque
from contextlib import contextmanager
from itertools import cycle, islice, pairwise

import pulsar
import pytest

from pulsar_ext.receive import many as ahead_module
from pulsar_ext.receive.many import Prefetch, configure_prefetch
from pulsar_ext.receive.source import NativeSource

ARGUMENTS = {
    "receiver_queue_size": 1_000,
    "batch_receive_policy": None,
    "message_listener": None,
    "unacked_messages_timeout_ms": None,
    "dead_letter_policy": None,
}


@pytest.mark.parametrize(("queue", "at_once"), [(200, 50), (401, 100), (1_000, 250), (1_600, 400), (100_000, 400)])
def test_fetch_takes_at_most_a_quarter_of_the_queue(queue, at_once):
    """A fetch takes at most a quarter of the queue, and never more than 400 messages."""
    named = ARGUMENTS | {"receiver_queue_size": queue}
    assert configure_prefetch(named, screens=False) == at_once
    policy = named["batch_receive_policy"].policy()
    assert (policy.getMaxNumMessages(), policy.getMaxNumBytes(), policy.getTimeoutMs()) == (at_once, 1 << 20, 1)


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
def test_prefetch_is_off_for_own_policies_and_timeouts(changed):
    """A small queue, a policy, a listener, an acknowledgement timeout or dead letters leave the arguments unchanged."""
    named = ARGUMENTS | changed
    assert not configure_prefetch(named, screens=False)
    assert named == ARGUMENTS | changed


def test_prefetch_is_off_for_screening_consumers():
    """A screening consumer does not prefetch, as a screened message counts as received."""
    named = dict(ARGUMENTS)
    assert not configure_prefetch(named, screens=True)
    assert named == ARGUMENTS


class _Queue:
    """The queue of a C++ consumer."""

    calls_back = False

    def __init__(self, count):
        self.left, self.fetches = deque(range(count)), 0

    def wait(self, _):
        if not self.left:
            raise pulsar.Timeout
        return self.left.popleft()

    def fetch(self):
        self.fetches += 1
        return [self.left.popleft() for _ in range(min(100, len(self.left)))]


def _take_all(ahead, turns):
    """Receive everything, and continue after a Ctrl-C."""
    got, quick = [], iter(())
    for turn in islice(turns, 10_000):
        before = len(got)
        try:
            got.extend(ahead.available_messages(70)[0] if turn else islice(quick, 30))
            if len(got) == before:
                quick, _ = ahead.next_messages()
        except KeyboardInterrupt:
            continue
        except pulsar.Timeout:
            break
    return got


@contextmanager
def _ctrl_c(at):
    """Interrupt the code of `many.py` at the n-th point where Python checks for signals; yield the count of points."""
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


@pytest.mark.parametrize("turns", [(0,), (1,), (0, 0, 1)])
def test_ctrl_c_during_a_fetch_loses_no_message(monkeypatch, turns):
    """Interrupted once at each point where Python checks for signals, all messages arrive, in order."""
    count, interrupted = 1_500, 0
    monkeypatch.setattr(ahead_module, "drainer", lambda *_: _Queue.fetch)
    monkeypatch.setattr(ahead_module, "IS_USED", False)
    monkeypatch.setattr(ahead_module, "_FAST_SECONDS", 1.0)
    while True:
        queue = _Queue(count)
        ahead = Prefetch(queue, queue, NativeSource(queue, lambda queue: queue.wait), pulsar.Message, 100)
        with _ctrl_c(interrupted + 1) as passed:
            got = _take_all(ahead, cycle(turns))
        assert got == list(range(count))
        assert queue.fetches
        if passed[0] <= interrupted:
            break
        interrupted += 1
    assert interrupted > 50
