"""An unsubscription that a Ctrl-C interrupted."""

from __future__ import annotations

import threading

import pulsar
import pytest

from pulsar_ext._native.answer import Answer
from pulsar_ext.receive.native import Unsubscription


def interrupted(unsubscription, *, begins):
    """Interrupt an unsubscription before or after its request begins; return its answer."""
    answer = Answer()

    def begin(_, begun):
        begun.extend([1] * begins)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        unsubscription.noted(begin)(answer)
    return answer


@pytest.mark.parametrize("begins", [False, True])
def test_only_a_begun_unsubscription_is_awaited(begins):
    """A request that a Ctrl-C prevented is not waited for; a begun one is, and counts as done."""
    unsubscription = Unsubscription()
    answer = interrupted(unsubscription, begins=begins)
    threading.Timer(0.3, answer, [pulsar.Result.Ok]).start()
    assert unsubscription.is_done(20) is begins
