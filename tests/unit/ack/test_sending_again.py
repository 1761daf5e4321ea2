"""When the cursors are looked at behind a reconnection: once what was sent again should have arrived."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pulsar
import pytest

from pulsar_ext._runtime.ending import OpenSenders
from pulsar_ext.ack.cursor import ArrivalProof, SendingAgain
from pulsar_ext.ack.delivery import ConnectionWatch
from pulsar_ext.ack.leaving import Leaving
from pulsar_ext.ack.topics import TopicAcks
from pulsar_ext.ack.tracker import AckTracker

TOPIC = "persistent://public/default/t"


class _Driven:
    """What sends again, a clock, and a broker that answers as a test says; `looks` has when cursors were looked for."""

    def __init__(self, answers=pulsar.Result.Ok):
        self.now, self.answers, self.looks, self.left = 1000.0, answers, [], []
        tracker = AckTracker(runs=False, keeps_indexes=True)
        self.topic = TopicAcks(TOPIC, -1, named=False, tracker=tracker)
        proof = ArrivalProof(OpenSenders().answer_to)
        monitor = SimpleNamespace(look_after=lambda sent: self.looks.append((self.now, sent)))
        self.again = SendingAgain(ConnectionWatch(), proof, [self.topic], monitor, lambda: None)
        self.inner = SimpleNamespace(
            get_last_message_id_async=lambda answer: answer(self.answers), acknowledge=self.left.append
        )

    def run(self, seconds, *, connected=True):
        """Look every 40 ms for so long."""
        end = self.now + seconds
        while self.now < end:
            self.again.look(self.inner, self.now, connected=connected, waits=False)
            self.now += 0.04


def test_cursors_are_looked_at_once_the_broker_knows_the_consumer():
    """Also where nothing is on its way, and however long that takes: before, they would seem to have gone back."""
    driven = _Driven()
    driven.run(5.0)
    assert not driven.looks
    driven.run(0.2, connected=False)
    driven.answers = pulsar.Result.BrokerMetadataError
    driven.run(20.0)
    assert {due for _, due in driven.looks} == {math.inf}
    driven.answers = pulsar.Result.Ok
    driven.run(2.0)
    (when, due) = driven.looks[-1]
    assert when == due


def test_cursors_are_looked_at_in_time_where_nobody_can_be_asked():
    """A consumer that turns out to be of several partitions just then has them looked at three seconds later."""
    driven = _Driven(pulsar.Result.OperationNotSupported)
    driven.run(0.2, connected=False)
    back = driven.now
    driven.run(1.0)
    assert driven.looks[-1][1] == pytest.approx(back + 3.0)


@pytest.mark.parametrize("held", ["is_held", "doubted_until"])
def test_what_may_not_leave_yet_leaves_when_it_may(held):
    """What has to be sent again, and waits for a look at the cursor, is kept, and sent as soon as nothing holds it."""
    driven = _Driven()
    driven.topic.sent.add(Leaving(whole=((5, 0),)), driven.now, {})
    driven.run(0.2, connected=False)
    driven.run(0.04)  # before it is asked
    setattr(driven.topic, held, math.inf)
    driven.run(100.0)
    assert not driven.left
    setattr(driven.topic, held, 0)
    driven.run(0.2)
    assert len(driven.left) == 1
    driven.run(5.0)
    assert not driven.topic.sent
    assert len(driven.left) == 1
