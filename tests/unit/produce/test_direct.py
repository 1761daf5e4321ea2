"""The direct sender: outcomes that the C++ client loses."""

from types import SimpleNamespace

import pulsar
import pytest

from pulsar_ext._native.messages import InnerMessageId
from pulsar_ext._runtime.callbacks import CallbackGuard
from pulsar_ext.produce.direct import DirectSender
from pulsar_ext.produce.outcome import PendingMessages


@pytest.mark.parametrize("limit", [None, PendingMessages(2)])
def test_close_reports_lost_outcomes_once(limit):
    """After a close, a message without an outcome has failed with AlreadyClosed, and a late outcome is ignored."""
    answers, outcomes = [], []
    inner = SimpleNamespace(send_async=lambda _, answer: answers.append(answer))
    unused = dict.fromkeys(("topic", "producer_name", "is_connected"))
    handle = SimpleNamespace(inner=inner, build=lambda content: content, **unused)
    context = SimpleNamespace(senders=set(), callbacks=CallbackGuard())
    sender = DirectSender(handle, context, limit=limit, may_block_inside=False, mixed_keys=None, timing=None)
    for _ in range(2):
        sender.send_async(b"", lambda result, _: outcomes.append(result))
    answers[0](pulsar.Result.Ok, InnerMessageId(-1, 1, 1, -1))
    assert sender.stop()
    sender.conclude(0.0)
    assert outcomes == [pulsar.Result.Ok, pulsar.Result.AlreadyClosed]
    answers[1](pulsar.Result.Ok, InnerMessageId(-1, 1, 2, -1))
    assert (len(outcomes), limit and limit.released) == (2, limit and 2)
