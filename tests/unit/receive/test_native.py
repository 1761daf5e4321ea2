"""An unsubscription that a Ctrl-C interrupted."""

from __future__ import annotations

import threading

import pulsar
import pytest

from pulsar_ext._native.answer import Answer
from pulsar_ext.receive.native import Unsubscription


def interrupted(unsubscription, *, begins):
    """Interrupt its beginning, before or behind the beginning; give its answer."""
    answer = Answer()

    def begin(_, begun):
        begun.extend([1] * begins)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        unsubscription.noted(begin)(answer)
    return answer


@pytest.mark.parametrize("begins", [False, True])
def test_the_answer_is_waited_for_if_it_has_begun(begins):
    """What a Ctrl-C kept from its beginning is never answered, and is not waited for; what has begun is done."""
    unsubscription = Unsubscription()
    answer = interrupted(unsubscription, begins=begins)
    threading.Timer(0.3, answer, [pulsar.Result.Ok]).start()
    assert unsubscription.is_done(20) is begins
