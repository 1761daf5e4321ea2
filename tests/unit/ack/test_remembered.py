"""What is delivered again though it was acknowledged: what may be dropped, beside what the application said last."""

from __future__ import annotations

from types import SimpleNamespace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pulsar_ext.ack.delivery import SentAcks
from pulsar_ext.ack.leaving import Leaving, Singles
from pulsar_ext.ack.topics import TopicAcks
from pulsar_ext.ack.tracker import AckTracker, Remembered

SIZES = {(5, 0): 0, (5, 1): 3, (5, 2): 0, (5, 3): 2, (5, 4): 0, (6, 0): 3, (6, 1): 0}
MESSAGES = [(entry, place) for entry, size in SIZES.items() for place in (range(size) if size else [-1])]
TOPIC = "persistent://public/default/t"


class Silence(RuleBasedStateMachine):
    """One topic, whose broker has got only what left before a silence, and delivers everything else again.

    `last` is the application's last word about each message: acknowledged or not. `known` is what the broker knows.
    """

    def __init__(self):
        super().__init__()
        self.now, self.last, self.known = 0.0, {}, set()
        self.left, self.refused = [], False

    @initialize(keeps=st.booleans(), runs=st.booleans())
    def begin(self, keeps, runs):
        tracker = AckTracker(runs=runs, keeps_indexes=keeps)
        self.topic = TopicAcks(TOPIC, -1, named=False, tracker=tracker)
        self.inner = SimpleNamespace(acknowledge=self.left.append, acknowledge_cumulative=self.left.append)

    @rule(message=st.sampled_from(MESSAGES))
    def acknowledge(self, message):
        entry, place = message
        self.last[message] = True
        if place < 0:
            self.topic.tracker.add_whole(entry)
        else:
            self.topic.tracker.add_bits(entry, SIZES[entry], 1 << place)

    @rule(message=st.sampled_from(MESSAGES))
    def acknowledge_up_to(self, message):
        entry, place = message
        self.last.update({one: True for one in MESSAGES if one <= message})
        self.topic.tracker.add_cumulative(entry, place, SIZES[entry])

    @rule(message=st.sampled_from(MESSAGES))
    def refuse(self, message):
        self.now += 1
        entry, place = message
        self.last[message], self.refused = False, True
        self.topic.take_back(entry, place, SIZES[entry], self.now)

    @rule()
    def leave(self):
        self.now += 1
        self.topic.tracker.settle(everything=True)
        self.topic.leave(self.inner, self.now, lambda: None, force=False)

    @rule()
    def doubt(self):
        self.topic.remember(0.0)

    @rule()
    def seek(self):
        self.topic.forget()
        self.last.clear()
        self.refused = False

    @invariant()
    def only_what_was_acknowledged_is_dropped(self):
        """Nothing is dropped whose last word was a refusal, or of which nothing was said since a seek."""
        if hasattr(self, "topic"):
            dropped = {one for one in MESSAGES if self.topic.came_again(*one)}
            assert dropped <= {one for one, done in self.last.items() if done}

    @invariant()
    def everything_acknowledged_in_doubt_is_dropped(self):
        """What was acknowledged is dropped, as long as nothing was refused: a position may have covered that."""
        if hasattr(self, "topic") and self.topic.remembered is not None and not self.refused:
            assert self.last.keys() <= {one for one in MESSAGES if self.topic.came_again(*one)}


TestSilence = Silence.TestCase
TestSilence.settings = settings(max_examples=150, stateful_step_count=15, deadline=None)


def test_a_range_of_single_messages_is_remembered():
    """Neighbours that left as a row are known one by one."""
    remembered = Remembered()
    remembered.add(Singles(-1, 5, range(3, 6)))
    assert [entry for entry in range(10) if remembered.has((5, entry))] == [3, 4, 5]


def test_a_cursor_that_was_moved_back_ends_the_dropping():
    """Where an entry is delivered that the broker surely knew as acknowledged, everything is for the application."""
    topic = TopicAcks(TOPIC, -1, named=False, tracker=AckTracker())
    topic.sent.add(Leaving(whole=((5, 0), (5, 1))), 1.0, {})
    topic.sent.add(Leaving(whole=((5, 2),)), 2.0, {})
    topic.sent.expire(1.0)
    topic.remember(0.0)
    assert topic.came_again((5, 2), -1)
    assert not topic.came_again((5, 1), -1)
    assert not topic.came_again((5, 2), -1)


def test_what_was_taken_back_is_not_sent_again():
    """A message that was refused after its acknowledgement left leaves its batch; one acknowledged later stays."""
    sent = SentAcks()
    sent.add(Leaving(whole=((5, 0), (5, 1)), indexes=(((5, 2), 3, 0b11),)), 1.0, {})
    sent.take_back((5, 0), -1, 0, 2.0)
    sent.take_back((5, 1), 1, 3, 2.0)
    sent.take_back((5, 2), 0, 3, 2.0)
    assert sent.since(0.0) == Leaving(whole=(), indexes=(((5, 2), 3, 0b10), ((5, 1), 3, 0b101)))
    sent.add(Leaving(whole=((5, 0),)), 3.0, {})
    assert sent.take() == Leaving(whole=((5, 0),), indexes=(((5, 2), 3, 0b10), ((5, 1), 3, 0b101)))


def test_a_position_ends_before_what_was_taken_back():
    """Sent again as it was, it would acknowledge the message that is to be delivered again."""
    sent = SentAcks()
    sent.add(Leaving((5, 4), whole=((5, 7),)), 1.0, {})
    sent.take_back((5, 2), -1, 0, 2.0)
    assert sent.take() == Leaving((5, 1), whole=((5, 7),))
