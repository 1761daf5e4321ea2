"""What is to be redelivered comes due once, in order, and in groups.

A backoff gives Java's delays, never less than the one before, and refuses what cannot be one.
"""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_ext.errors import InvalidUse
from pulsar_ext.redelivery.schedule import Delayed, MultiplierRedeliveryBackoff, check_backoff, delay_of


def test_a_steady_stream_holds_nothing_up():
    """Something added at every moment delays only itself; groups keep their distance."""
    delayed: Delayed[int] = Delayed(gap=5.0)
    came = []
    for now in range(100):
        delayed.add(now, now, now + 10.0)
        if found := delayed.due(float(now)):
            came.append((now, found))
    assert [now for now, _ in came] == list(range(10, 100, 5))
    assert [thing for _, found in came for thing in found] == list(range(86))
    assert delayed.wait(99.0) == 1.0


@given(st.lists(st.tuples(st.sampled_from(["add", "drop", "due", "clear"]), st.integers(0, 5), st.integers(0, 20))))
def test_each_key_comes_due_once_at_its_earliest_time(steps):
    """Whatever is added, dropped and added again: the model is a dictionary of times."""
    delayed: Delayed[int] = Delayed()
    model: dict[int, float] = {}
    now = 0.0
    for step, key, number in steps:
        if step == "add":
            delayed.add(key, key, float(number))
            model[key] = min(float(number), model.get(key, 99.0))
        elif step == "drop":
            delayed.drop(key)
            model.pop(key, None)
        elif step == "clear":
            delayed.clear()
            model.clear()
        else:
            now = max(now, float(number))
            expected = {one for one, due in model.items() if due <= now}
            assert set(delayed.due(now)) == expected
            model = {one: due for one, due in model.items() if one not in expected}
        assert len(delayed) == len(model)
        wait = delayed.wait(now)
        assert wait == (max(min(model.values()) - now, 0.0) if model else None)


DELAYS = st.integers(0, 10**9)
MULTIPLIERS = st.floats(1.0001, 1e300)


@pytest.mark.parametrize(
    ("backoff", "delays"),
    [
        (MultiplierRedeliveryBackoff(), {-1: 10_000, 0: 10_000, 1: 20_000, 5: 320_000, 6: 600_000, 100: 600_000}),
        (MultiplierRedeliveryBackoff(1_000, 600_000), {0: 1_000, 1: 2_000, 4: 16_000, 9: 512_000, 10: 600_000}),
        (MultiplierRedeliveryBackoff(2_000, 6_000_000, 5), {0: 2_000, 1: 10_000, 4: 1_250_000, 5: 6_000_000}),
        (MultiplierRedeliveryBackoff(0, 50, 3), {0: 0, 1: 0, 9: 0}),
        (MultiplierRedeliveryBackoff(7, 7), {0: 7, 1: 7, 9: 7}),
        (MultiplierRedeliveryBackoff(3, 1_000, 1.5), {0: 3, 1: 4, 2: 6, 3: 10, 4: 15}),
    ],
)
def test_delays_are_those_of_java(backoff, delays):
    """What `MultiplierRedeliveryBackoff.next()` of the Java client gives for the same settings."""
    assert {count: backoff(count) for count in delays} == delays


@given(DELAYS, DELAYS, MULTIPLIERS, st.integers(-1, 2**31 - 1))
def test_delays_grow_between_their_limits(one, other, multiplier, count):
    """Whatever the settings, a delay is a whole number, not below the one before, and within both limits."""
    least, most = sorted((one, other))
    backoff = MultiplierRedeliveryBackoff(least, most, multiplier)
    delay = backoff(count)
    assert type(delay) is int
    assert least <= delay <= most
    assert delay <= backoff(count + 1)
    assert backoff(2**31 - 1) == (most if least else 0)


@given(st.integers(1, 10**6), st.integers(1, 10**9), st.floats(1.01, 100), st.integers(1, 60))
def test_each_delay_is_the_power_of_the_multiplier(least, more, multiplier, count):
    """Between the limits it is the first delay times the multiplier's power, cut to whole milliseconds."""
    most = least + more
    power = least * math.pow(multiplier, count)
    if power < most:
        assert MultiplierRedeliveryBackoff(least, most, multiplier)(count) == int(power)


@pytest.mark.parametrize(
    "settings",
    [
        (-1, 5),
        (5, 4),
        (1.5, 4),
        (1, 2.5),
        (True, 4),
        (1, 2**63),
        *((1, 2, by) for by in (1, 0.5, math.inf, math.nan, "2")),
    ],
)
def test_settings_that_cannot_be(settings):
    """A delay below 0, limits in the wrong order, and a multiplier that does not multiply are refused."""
    with pytest.raises(InvalidUse):
        MultiplierRedeliveryBackoff(*settings)


@pytest.mark.parametrize("answer", [-1, None, "1", math.nan, math.inf, True])
def test_an_answer_that_is_no_delay(answer):
    """A function of the application's that gives no milliseconds is told so."""
    with pytest.raises(InvalidUse, match="milliseconds"):
        delay_of(lambda _: answer, 3)


def test_any_function_is_a_backoff():
    """A function of the count is asked with it; what cannot be called is none."""
    assert delay_of(lambda count: count * 250, 3) == 0.75
    check_backoff("a", None)
    with pytest.raises(InvalidUse, match="negative"):
        check_backoff("negative", 5)
