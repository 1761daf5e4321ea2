"""A transfer sends each message once, in the order of its key, whenever it is killed; its decisions are pure."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from pulsar_ext.redelivery.letters import NO_SCHEMA, count_retry, origin_properties
from pulsar_ext.transfer import ORIGIN, Form, Item, copied_properties, runs, windows

TARGETS, KEYS = ("t", "u"), ("a", "b", "c")
FORMS = [Form(NO_SCHEMA, str, is_large) for is_large in (False, True)]
ITEMS = st.lists(
    st.builds(Item, st.sampled_from(KEYS), st.just(""), st.sampled_from(TARGETS), st.sampled_from(FORMS), st.just(1)),
    max_size=30,
)
"""Items with their key in place of the message."""


class World:
    """A source with its acknowledged messages, and targets with their copies."""

    def __init__(self, items, draw):
        self.items = [item._replace(id=str(number)) for number, item in enumerate(items)]
        self.stored = {target: [] for target in TARGETS}
        self.acknowledged, self._draw = set(), draw

    def persist(self, target, items, *, all_of_them):
        """Store the first items of each key, as batches by key may be persisted in any order."""
        by_key = defaultdict(list)
        for item in items:
            by_key[item.message].append(item)
        for same in by_key.values():
            count = len(same) if all_of_them else self._draw(st.integers(0, len(same)))
            self.stored[target] += same[:count]

    def run(self, dies_after):
        """Transfer until the process has sent `dies_after` times, or to the end with None."""
        copied = {target: {item.id for item in stored} for target, stored in self.stored.items()}
        waiting = [item for item in self.items if item.id not in self.acknowledged]
        for window in windows(waiting, self._draw(st.integers(1, 9)), self._draw(st.integers(1, 9))):
            for target, form, items in runs(window, copied):
                assert {item.form for item in items} == {form}
                dies = dies_after == 0
                self.persist(target, items, all_of_them=not dies)
                if dies:
                    return
                dies_after = None if dies_after is None else dies_after - 1
            ids = [item.id for item in window]
            self.acknowledged.update(ids if dies_after != 0 else self._draw(st.sets(st.sampled_from(ids))))


@given(ITEMS, st.lists(st.integers(0, 6), max_size=5), st.data())
def test_killed_transfers_send_each_message_once(items, kills, data):
    """After any kills, one whole run leaves one copy of each message, in the order of its key."""
    world = World(items, data.draw)
    for sends in kills:
        world.run(sends)
    world.run(None)
    assert world.acknowledged == {item.id for item in world.items}
    for target in TARGETS:
        for key in KEYS:
            sent = [item.id for item in world.stored[target] if item.message == key]
            assert sent == [item.id for item in world.items if (item.target, item.message) == (target, key)]


@given(ITEMS, st.integers(1, 5), st.integers(1, 5))
def test_windows_are_bounded(items, messages, size):
    """Windows have all items in order, and without its last item none reaches a limit."""
    found = list(windows(items, messages, size))
    assert [item for window in found for item in window] == items
    assert all(0 < len(window) <= messages and sum(item.size for item in window[:-1]) < size for window in found)


@given(st.dictionaries(st.text(), st.text()), st.integers(0, 3))
def test_letter_loses_its_own_properties(properties, retries):
    """The copy of a letter has its message's properties, and its origin."""
    letter = origin_properties(properties, "topic", "1:2:-1", "s")
    for _ in range(retries):
        letter, _ = count_retry(letter, 100)
    assert copied_properties(letter, "dlq 5:7:-1", is_letter=True) == {**properties, ORIGIN: "dlq 5:7:-1"}
    assert copied_properties(letter, "dlq 5:7:-1", is_letter=False) == {**letter, ORIGIN: "dlq 5:7:-1"}
