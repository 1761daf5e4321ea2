"""The delay queue returns each item once, in order and in groups.

A backoff returns Java's delays, which never decrease, and rejects invalid settings.
"""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_ext.errors import InvalidUse
from pulsar_ext.redelivery.schedule import DelayQueue, MultiplierRedeliveryBackoff, check_backoff, delay_of


def test_steady_stream_delays_no_earlier_item():
    """An item added at every moment delays only itself, and groups keep their gap."""
    delayed: DelayQueue[int] = DelayQueue(gap=5.0)
    groups = []
    for now in range(100):
        delayed.add(now, now, now + 10.0)
        if found := delayed.due(float(now)):
            groups.append((now, found))
    assert [now for now, _ in groups] == list(range(10, 100, 5))
    assert [item for _, found in groups for item in found] == list(range(86))
    assert delayed.wait(99.0) == 1.0


@given(st.lists(st.tuples(st.sampled_from(["add", "drop", "due", "clear"]), st.integers(0, 5), st.integers(0, 20))))
def test_each_key_is_due_once_at_its_earliest_time(steps):
    """After any additions and removals the queue behaves like a dictionary of times."""
    delayed: DelayQueue[int] = DelayQueue()
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
    """The delays equal those of Java's `MultiplierRedeliveryBackoff.next()` with the same settings."""
    assert {count: backoff(count) for count in delays} == delays


@given(DELAYS, DELAYS, MULTIPLIERS, st.integers(-1, 2**31 - 1))
def test_delays_grow_between_their_limits(one, other, multiplier, count):
    """A delay is an int, not below the previous one, and within both limits."""
    least, most = sorted((one, other))
    backoff = MultiplierRedeliveryBackoff(least, most, multiplier)
    delay = backoff(count)
    assert type(delay) is int
    assert least <= delay <= most
    assert delay <= backoff(count + 1)
    assert backoff(2**31 - 1) == (most if least else 0)


@given(st.integers(1, 10**6), st.integers(1, 10**9), st.floats(1.01, 100), st.integers(1, 60))
def test_each_delay_is_the_power_of_the_multiplier(least, more, multiplier, count):
    """Between the limits a delay is the first one times a power of the multiplier, truncated to milliseconds."""
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
def test_invalid_backoff_settings_raise(settings):
    """A negative delay, limits in the wrong order and an invalid multiplier raise."""
    with pytest.raises(InvalidUse):
        MultiplierRedeliveryBackoff(*settings)


@pytest.mark.parametrize("answer", [-1, None, "1", math.nan, math.inf, True])
def test_invalid_backoff_result_raises(answer):
    """A result of the application's function that is not milliseconds raises."""
    with pytest.raises(InvalidUse, match="milliseconds"):
        delay_of(lambda _: answer, 3)


def test_any_callable_is_a_backoff():
    """A callable is called with the redelivery count; anything else raises."""
    assert delay_of(lambda count: count * 250, 3) == 0.75
    check_backoff("a", None)
    with pytest.raises(InvalidUse, match="negative"):
        check_backoff("negative", 5)
