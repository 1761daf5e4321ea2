"""What is to be redelivered comes due once, in order, and in groups."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pulsar_ext.redelivery.schedule import Delayed


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
