"""The steps of a message: whatever fails, it is acknowledged, sent on or redelivered."""

from __future__ import annotations

from dataclasses import dataclass, field

import pulsar
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_ext import Acknowledge, DeadLetter, InvalidUse, MultiplierRedeliveryBackoff, ReconsumeLater, Redeliver
from pulsar_ext.process import Handling, drive
from pulsar_ext.request import Replying

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
    """Notes its calls, and raises the configured errors."""

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


def test_message_is_acknowledged_when_its_handler_returns():
    """A returning handler leads to one acknowledgement, and to no other call."""
    consumer = _Consumer()
    run(handling(), consumer, _Message())
    assert consumer.calls == [("acknowledge",)]


@pytest.mark.parametrize("as_function", [False, True])
@pytest.mark.parametrize(("action", "call"), list(zip(ACTIONS, CALLS, strict=True)))
def test_each_action_is_one_call_of_the_consumer(action, call, as_function):
    """An action, or the result of a function of the message and the error, is one call of the consumer."""
    consumer, error, message, seen = _Consumer(), ValueError("broken"), _Message(), []

    def on_error(*arguments):
        seen.append(arguments)
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
def test_failures_never_lose_the_message(fails, action, failing, closed, has_letters):
    """The last call succeeded, or was the negative acknowledgement."""
    error = pulsar.AlreadyClosed("closed") if closed else RuntimeError("away")
    consumer = _Consumer(dict.fromkeys(failing - {"negative_acknowledge"}, error))
    run(handling(fails=fails, on_error=lambda *_: action, has_letters=has_letters), consumer, _Message())
    last = consumer.calls[-1][0]
    assert last not in failing or last == "negative_acknowledge"
    assert [name for name, *_ in consumer.calls].count("negative_acknowledge") <= 1


@pytest.mark.parametrize("end", [SystemExit(1), KeyboardInterrupt()])
def test_exit_of_the_program_redelivers_the_message(end):
    """An exception that ends the program is raised, redelivers the message, and does not reach on_error."""
    consumer = _Consumer()
    with pytest.raises(type(end)):
        run(handling(fails=end, on_error=ACTIONS[0]), consumer, _Message())
    assert consumer.calls == [("negative_acknowledge",)]


def test_backoff_depends_on_the_number_of_retries():
    """The delay of a retry letter is the backoff's for the letter's retry count."""
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
def test_invalid_arguments_of_process_raise(handler, concurrency, on_error, has_letters):
    """Invalid arguments raise before any message is received."""
    with pytest.raises(InvalidUse):
        Handling(handler, concurrency, on_error, has_letters)


@pytest.mark.parametrize("delay", [-1, 1.5, None, True, "1"])
def test_invalid_delay_raises(delay):
    """A delay that is neither a non-negative int nor a function raises."""
    with pytest.raises(InvalidUse):
        ReconsumeLater(delay)


@pytest.mark.parametrize("on_error", [Acknowledge, DeadLetter, ReconsumeLater, Redeliver, Exception, int, "x", None])
def test_on_error_must_be_an_action_or_a_function(on_error):
    """The class of an action, or another invalid value, raises before a message is received."""
    with pytest.raises(InvalidUse, match="on_error must be one of"):
        handling(on_error=on_error)


def test_action_returned_by_a_function_is_checked():
    """A function that returns a class instead of an action has its message redelivered."""
    consumer = _Consumer()
    run(handling(fails=ValueError(), on_error=lambda *_: DeadLetter), consumer, _Message())
    assert consumer.calls == [("negative_acknowledge",)]


@pytest.mark.parametrize("on_error", [DeadLetter, DeadLetter(), 5])
def test_replier_checks_on_error_when_created(on_error):
    """A replier raises for an invalid action, and for letters without `enable_retry=True`, before it subscribes."""
    with pytest.raises(InvalidUse):
        Replying(bytes, "repliers", on_error)
    assert Replying(bytes, "repliers", DeadLetter(), has_letters=True).on_error == DeadLetter()


def test_backoff_must_be_an_object_or_a_function():
    """The class of a backoff raises, as it would otherwise be called for each delay."""
    with pytest.raises(InvalidUse, match="must be a MultiplierRedeliveryBackoff"):
        ReconsumeLater(MultiplierRedeliveryBackoff)
