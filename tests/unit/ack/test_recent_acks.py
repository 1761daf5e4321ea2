"""Dropping redelivered messages that were acknowledged, checked against the application's last call for each."""

from __future__ import annotations

from types import SimpleNamespace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pulsar_ext.ack.delivery import SentAcks
from pulsar_ext.ack.groups import AckGroup, Singles
from pulsar_ext.ack.topics import TopicAcks
from pulsar_ext.ack.tracker import AckTracker, RecentAcks

SIZES = {(5, 0): 0, (5, 1): 3, (5, 2): 0, (5, 3): 2, (5, 4): 0, (6, 0): 3, (6, 1): 0}
MESSAGES = [(entry, index) for entry, size in SIZES.items() for index in (range(size) if size else [-1])]
TOPIC = "persistent://public/default/t"


class SilentConnection(RuleBasedStateMachine):
    """A topic whose broker lost what was sent after some time, and redelivers those messages.

    `last` is the application's last call for each message: acknowledged or not.
    """

    def __init__(self):
        super().__init__()
        self.now, self.last, self.known = 0.0, {}, set()
        self.sent, self.withdrawn = [], False

    @initialize(keeps=st.booleans(), runs=st.booleans())
    def begin(self, keeps, runs):
        tracker = AckTracker(runs=runs, keeps_indexes=keeps)
        self.topic = TopicAcks(TOPIC, -1, named=False, tracker=tracker)
        self.inner = SimpleNamespace(acknowledge=self.sent.append, acknowledge_cumulative=self.sent.append)

    @rule(message=st.sampled_from(MESSAGES))
    def acknowledge(self, message):
        entry, index = message
        self.last[message] = True
        if index < 0:
            self.topic.tracker.add_whole(entry)
        else:
            self.topic.tracker.add_bits(entry, SIZES[entry], 1 << index)

    @rule(message=st.sampled_from(MESSAGES))
    def acknowledge_up_to(self, message):
        entry, index = message
        self.last.update({one: True for one in MESSAGES if one <= message})
        self.topic.tracker.add_cumulative(entry, index, SIZES[entry])

    @rule(message=st.sampled_from(MESSAGES))
    def withdraw(self, message):
        self.now += 1
        entry, index = message
        self.last[message], self.withdrawn = False, True
        self.topic.withdraw(entry, index, SIZES[entry], self.now)

    @rule()
    def send(self):
        self.now += 1
        self.topic.tracker.release_partial(everything=True)
        self.topic.send_group(self.inner, self.now, lambda: None, force=False)

    @rule()
    def doubt(self):
        self.topic.remember(0.0)

    @rule()
    def seek(self):
        self.topic.forget()
        self.last.clear()
        self.withdrawn = False

    @invariant()
    def only_what_was_acknowledged_is_dropped(self):
        """A message is dropped only if the application's last call since a seek acknowledged it."""
        if hasattr(self, "topic"):
            dropped = {one for one in MESSAGES if self.topic.is_redelivered_duplicate(*one)}
            assert dropped <= {one for one, done in self.last.items() if done}

    @invariant()
    def everything_acknowledged_in_doubt_is_dropped(self):
        """Every acknowledged message is dropped unless one was withdrawn: a position may have covered it."""
        if hasattr(self, "topic") and self.topic.remembered is not None and not self.withdrawn:
            assert self.last.keys() <= {one for one in MESSAGES if self.topic.is_redelivered_duplicate(*one)}


TestSilentConnection = SilentConnection.TestCase
TestSilentConnection.settings = settings(max_examples=150, stateful_step_count=15, deadline=None)


def test_recent_acks_store_ranges_of_singles():
    """Consecutive entries sent as a range are known one by one."""
    remembered = RecentAcks()
    remembered.add(Singles(-1, 5, range(3, 6)))
    assert [entry for entry in range(10) if remembered.has((5, entry))] == [3, 4, 5]


def test_moved_back_cursor_ends_dropping():
    """Nothing is dropped any more after an entry that the broker knew as acknowledged was redelivered."""
    topic = TopicAcks(TOPIC, -1, named=False, tracker=AckTracker())
    topic.sent.add(AckGroup(whole=((5, 0), (5, 1))), 1.0, {})
    topic.sent.add(AckGroup(whole=((5, 2),)), 2.0, {})
    topic.sent.expire(1.0)
    topic.remember(0.0)
    assert topic.is_redelivered_duplicate((5, 2), -1)
    assert not topic.is_redelivered_duplicate((5, 1), -1)
    assert not topic.is_redelivered_duplicate((5, 2), -1)


def test_withdrawn_acks_are_not_resent():
    """A withdrawn message is removed from its batch; one acknowledged after that stays."""
    sent = SentAcks()
    sent.add(AckGroup(whole=((5, 0), (5, 1)), indexes=(((5, 2), 3, 0b11),)), 1.0, {})
    sent.withdraw((5, 0), -1, 0, 2.0)
    sent.withdraw((5, 1), 1, 3, 2.0)
    sent.withdraw((5, 2), 0, 3, 2.0)
    assert sent.since(0.0) == AckGroup(whole=(), indexes=(((5, 2), 3, 0b10), ((5, 1), 3, 0b101)))
    sent.add(AckGroup(whole=((5, 0),)), 3.0, {})
    assert sent.take() == AckGroup(whole=((5, 0),), indexes=(((5, 2), 3, 0b10), ((5, 1), 3, 0b101)))


def test_position_ends_before_withdrawn_entry():
    """A resent position must not acknowledge a message that is to be redelivered."""
    sent = SentAcks()
    sent.add(AckGroup((5, 4), whole=((5, 7),)), 1.0, {})
    sent.withdraw((5, 2), -1, 0, 2.0)
    assert sent.take() == AckGroup((5, 1), whole=((5, 7),))
