"""Cursor checks after a reconnection, once resent acknowledgements should have arrived."""

from __future__ import annotations

import math

import pulsar
import pytest

from pulsar_ext.ack.delivery import ARRIVAL_SECONDS, Delivery
from pulsar_ext.ack.groups import AckGroup
from pulsar_ext.ack.topics import TopicAcks
from pulsar_ext.ack.tracker import AckTracker

TOPIC = "persistent://public/default/t"


class _Driven:
    """A delivery with a fake clock and broker; `checks` has the scheduled checks of the cursors."""

    def __init__(self, answers=pulsar.Result.Ok):
        self.now, self.answers, self.checks, self.sent = 1000.0, answers, [], []
        tracker = AckTracker(runs=False, keeps_indexes=True)
        self.topic = TopicAcks(TOPIC, -1, named=False, tracker=tracker)
        self.delivery = Delivery([self.topic])
        self.result = None

    def run(self, seconds, *, connected=True):
        """Poll every 40 ms for `seconds`."""
        end = self.now + seconds
        while self.now < end:
            self.delivery.cursor_check_at = None
            _, probes = self.delivery.poll(self.now, connected=connected, has_pending=False, result=self.result)
            self.result = self.answers if probes else None
            if connected:
                self.sent.extend(lost for _, lost, _ in self.delivery.lost(self.now))
            if self.delivery.cursor_check_at is not None:
                self.checks.append((self.now, self.delivery.cursor_check_at - ARRIVAL_SECONDS))
            self.now += 0.04


def test_cursors_are_checked_once_consumer_is_known():
    """Cursors are not checked before the broker knows the consumer: until then they may appear moved back."""
    driven = _Driven()
    driven.run(5.0)
    assert not driven.checks
    driven.run(0.2, connected=False)
    driven.answers = pulsar.Result.BrokerMetadataError
    driven.run(20.0)
    assert {due for _, due in driven.checks} == {math.inf}
    driven.answers = pulsar.Result.Ok
    driven.run(2.0)
    (scheduled_at, due) = driven.checks[-1]
    assert due == pytest.approx(scheduled_at)


def test_cursors_are_checked_in_time_without_probe():
    """The cursors of a consumer that turns out not to support probes are checked three seconds later."""
    driven = _Driven(pulsar.Result.OperationNotSupported)
    driven.run(0.2, connected=False)
    back = driven.now
    driven.run(1.0)
    assert driven.checks[-1][1] == pytest.approx(back + 3.0)


@pytest.mark.parametrize("held", ["is_held", "resend_blocked_until"])
def test_held_back_acks_are_resent_when_released(held):
    """Acknowledgements that wait for a check of the cursor are kept, and resent when they are released."""
    driven = _Driven()
    driven.topic.sent.add(AckGroup(whole=((5, 0),)), driven.now, {})
    driven.run(0.2, connected=False)
    driven.run(0.04)  # before the probe
    setattr(driven.topic, held, math.inf)
    driven.run(100.0)
    assert not driven.sent
    setattr(driven.topic, held, 0)
    driven.run(0.2)
    assert len(driven.sent) == 1
    driven.run(5.0)
    assert not driven.topic.sent
    assert len(driven.sent) == 1
