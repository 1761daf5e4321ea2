"""The steps of a message: whatever fails on the way, it is acknowledged, sent on, or comes again."""

from __future__ import annotations

from dataclasses import dataclass, field

import pulsar
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_ext import Acknowledge, DeadLetter, InvalidUse, MultiplierRedeliveryBackoff, ReconsumeLater, Redeliver
from pulsar_ext.process.processing import Handling, drive
from pulsar_ext.request.replier import Replying

ACTIONS = (Acknowledge(), Redeliver(), ReconsumeLater(5, {"a": "b"}), DeadLetter({"c": "d"}))
CALLS = ("acknowledge", "negative_acknowledge", "reconsume_later", "send_dead_letter")


class _Message:
    def __init__(self, times=None):
        self._times = times

    def message_id(self):
        return "1:2"

    def properties(self):
        return {} if self._times is None else {"RECONSUMETIMES": self._times}


@dataclass
class _Consumer:
    """Notes what it is asked for, and raises what it is told to."""

    raises: dict[str, BaseException] = field(default_factory=dict)
    calls: list[tuple] = field(default_factory=list)

    def __getattr__(self, name):
        def call(_, *more):
            self.calls.append((name, *more))
            if name in self.raises:
                raise self.raises[name]

        return call


def run(handling, consumer, message):
    drive(handling.steps(consumer, message))


def handling(*, fails=None, on_error=ACTIONS[1], has_letters=True):
    def handle(_):
        if fails is not None:
            raise fails

    return Handling(handle, 1, on_error, has_letters)


def test_a_handler_that_returns_has_its_message_acknowledged():
    """Once, and nothing else is asked for."""
    consumer = _Consumer()
    run(handling(), consumer, _Message())
    assert consumer.calls == [("acknowledge",)]


@pytest.mark.parametrize("as_function", [False, True])
@pytest.mark.parametrize(("action", "call"), list(zip(ACTIONS, CALLS, strict=True)))
def test_each_action_is_its_call(action, call, as_function):
    """An action, or what a function of the message and the error gives, is one call of the consumer."""
    consumer, error, message, seen = _Consumer(), ValueError("broken"), _Message(), []

    def on_error(*given):
        seen.append(given)
        return action

    run(handling(fails=error, on_error=on_error if as_function else action), consumer, message)
    assert [name for name, *_ in consumer.calls] == [call]
    assert seen == ([(message, error)] if as_function else [])


@given(
    fails=st.none() | st.just(ValueError("broken")),
    action=st.sampled_from(ACTIONS) | st.just(None),
    failing=st.sets(st.sampled_from(CALLS)),
    closed=st.booleans(),
    has_letters=st.booleans(),
)
def test_whatever_fails_something_becomes_of_the_message(fails, action, failing, closed, has_letters):
    """The last call did not fail, or it was the negative acknowledgement: nothing is left without either."""
    error = pulsar.AlreadyClosed("closed") if closed else RuntimeError("away")
    consumer = _Consumer(dict.fromkeys(failing - {"negative_acknowledge"}, error))
    run(handling(fails=fails, on_error=lambda *_: action, has_letters=has_letters), consumer, _Message())
    last = consumer.calls[-1][0]
    assert last not in failing or last == "negative_acknowledge"
    assert [name for name, *_ in consumer.calls].count("negative_acknowledge") <= 1


@pytest.mark.parametrize("end", [SystemExit(1), KeyboardInterrupt()])
def test_what_ends_a_program_is_raised_and_the_message_comes_again(end):
    """An end of the program in a handler is no failure for on_error."""
    consumer = _Consumer()
    with pytest.raises(type(end)):
        run(handling(fails=end, on_error=ACTIONS[0]), consumer, _Message())
    assert consumer.calls == [("negative_acknowledge",)]


def test_a_backoff_goes_by_how_often_it_was_consumed_later():
    """The delay of a retry letter is what the backoff gives for the count that the letter has."""
    backoff = MultiplierRedeliveryBackoff(100, 10_000, 2)
    delays = []
    for times in (None, "1", "5", "50"):
        consumer = _Consumer()
        run(handling(fails=ValueError(), on_error=ReconsumeLater(backoff)), consumer, _Message(times))
        delays += [delay for _, delay, _ in consumer.calls]
    assert delays == [100, 200, 3_200, 10_000]


@pytest.mark.parametrize(
    ("handler", "concurrency", "on_error", "has_letters"),
    [
        (None, 1, Redeliver(), True),
        (print, 0, Redeliver(), True),
        (print, True, Redeliver(), True),
        (print, 1.0, Redeliver(), True),
        (print, 1, None, True),
        (print, 1, "redeliver", True),
        (print, 1, ReconsumeLater(1), False),
        (print, 1, DeadLetter(), False),
    ],
)
def test_what_cannot_be_done_is_refused(handler, concurrency, on_error, has_letters):
    """Before anything is received."""
    with pytest.raises(InvalidUse):
        Handling(handler, concurrency, on_error, has_letters)


@pytest.mark.parametrize("delay", [-1, 1.5, None, True, "1"])
def test_a_delay_is_whole_milliseconds(delay):
    """Or what gives them."""
    with pytest.raises(InvalidUse):
        ReconsumeLater(delay)


@pytest.mark.parametrize("on_error", [Acknowledge, DeadLetter, ReconsumeLater, Redeliver, Exception, int, "x", None])
def test_on_error_must_be_an_object_or_a_function(on_error):
    """The class of an action, or anything else that is none, is refused before a message is received."""
    with pytest.raises(InvalidUse, match="on_error must be one of"):
        handling(on_error=on_error)


def test_an_action_that_a_function_returns_is_checked():
    """A function that returns a class in place of an action has its message delivered again."""
    consumer = _Consumer()
    run(handling(fails=ValueError(), on_error=lambda *_: DeadLetter), consumer, _Message())
    assert consumer.calls == [("negative_acknowledge",)]


@pytest.mark.parametrize("on_error", [DeadLetter, DeadLetter(), 5])
def test_a_replier_checks_on_error_when_it_is_made(on_error):
    """A replier refuses what is no action, and letters without `enable_retry=True`, before it subscribes."""
    with pytest.raises(InvalidUse):
        Replying(bytes, "repliers", on_error)
    assert Replying(bytes, "repliers", DeadLetter(), has_letters=True).on_error == DeadLetter()


def test_a_backoff_must_be_an_object_or_a_function():
    """The class of a backoff is refused, which would otherwise be called for each delay."""
    with pytest.raises(InvalidUse, match="must be a MultiplierRedeliveryBackoff"):
        ReconsumeLater(MultiplierRedeliveryBackoff)
