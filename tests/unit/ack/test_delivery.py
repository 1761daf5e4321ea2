"""The delivery of acknowledgements over a modelled connection, which is lost, dead or replaced at any time."""

from __future__ import annotations

import pulsar
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_ext.ack.delivery import UNNOTICED_SECONDS, Delivery, TopicDelivery
from pulsar_ext.ack.groups import AckGroup

_POLL_SECONDS = 0.04
_HOLD_SECONDS = 0.1
"""Time for which the C++ client holds an acknowledgement before it sends it."""
_PING_SECONDS = 60.0
"""Time after which the C++ client notices a dead connection."""


class _World:
    """A consumer over a modelled C++ client and broker; `arrived` has the entries that the cursor shows."""

    def __init__(self, *, can_probe):
        self.now = 1000.0
        self.topic = TopicDelivery()
        self.delivery = Delivery([self.topic], can_probe=can_probe)
        self.connected, self.dead_since, self.known_at = True, None, 0.0
        self.held, self.pending, self.arrived, self.acknowledged = [], [], set(), 0
        self.probe, self.resent = None, 0

    def acknowledge(self):
        self.pending.append((5, self.acknowledged))
        self.acknowledged += 1

    def lose(self, *, known_after):
        """Lose the connection: what the C++ client holds is dropped, and a probe in flight is not answered."""
        self.connected, self.dead_since, self.held, self.probe = False, None, [], None
        self.known_at = known_after

    def connect(self):
        """Open another connection, on which the broker knows the consumer after `known_after` seconds."""
        self.connected, self.known_at = True, self.now + self.known_at

    def pass_to_native(self, group):
        if self.connected:
            self.held.append((self.now, group))

    def step(self, *, polls=True):
        """Let one interval pass, after which the consumer may poll."""
        self.now += _POLL_SECONDS
        while self.held and self.held[0][0] + _HOLD_SECONDS <= self.now:
            _, group = self.held.pop(0)
            if self.dead_since is None and self.now >= self.known_at:
                self.arrived.update(group.whole)
        if self.dead_since is not None and self.now - self.dead_since > _PING_SECONDS:
            self.lose(known_after=0.5)
            self.connect_at = self.now + 0.2
        if not self.connected and self.now >= self.connect_at:
            self.connect()
        if polls:
            self._poll()

    def _poll(self):
        sent_at, result = self.probe or (0.0, None)
        if self.probe is not None and (self.dead_since is not None or self.now < sent_at + 0.05):
            result = None
        _, probes = self.delivery.poll(
            self.now, connected=self.connected, has_pending=bool(self.pending), result=result
        )
        if result is not None:
            self.probe = None
        if probes:
            known = self.now >= self.known_at
            self.probe = (self.now, pulsar.Result.Ok if known else pulsar.Result.BrokerMetadataError)
        if not self.connected:
            return
        for _, lost, _ in self.delivery.lost(self.now):
            self.resent += 1
            self.pass_to_native(lost)
        if self.pending:
            group, self.pending = AckGroup(whole=tuple(self.pending)), []
            self.topic.sent.add(group, self.now, {})
            self.pass_to_native(group)

    def run(self, seconds, *, polls=True):
        end = self.now + seconds
        while self.now < end:
            self.step(polls=polls)


_SECONDS = st.floats(0.05, 5.0)
_EVENTS = st.one_of(
    st.tuples(st.just("acknowledge"), st.integers(1, 3)),
    st.tuples(st.just("run"), _SECONDS),
    st.tuples(st.just("lose"), st.tuples(st.floats(UNNOTICED_SECONDS + 0.02, 2.0), st.floats(0.0, 4.0), st.booleans())),
    st.tuples(st.just("die"), st.none()),
)


def _apply(world, kind, value):
    if kind == "acknowledge":
        for _ in range(value):
            world.acknowledge()
            world.step()
    elif kind == "run":
        world.run(value)
    elif kind == "die" and world.connected and world.dead_since is None:
        world.dead_since = world.now
    elif kind == "lose" and world.connected:
        down, known_after, polls = value
        if not (polls or world.delivery.proof.can_ask):
            known_after = min(known_after, 0.8)  # slept through, it is resent once, a second later
        world.lose(known_after=known_after)
        world.connect_at = world.now + down
        world.run(down + 0.1, polls=polls)


@settings(max_examples=25, deadline=None)
@given(st.lists(_EVENTS, max_size=6), st.booleans())
def test_every_ack_arrives_whatever_happens_to_connection(events, can_probe):
    """After the last fault, everything acknowledged arrives, and nothing is resent for good."""
    world = _World(can_probe=can_probe)
    world.run(1.0)
    for kind, value in events:
        _apply(world, kind, value)
    world.run(65.0 if can_probe else 95.0)
    assert world.arrived == {(5, entry) for entry in range(world.acknowledged)}
    resent = world.resent
    world.run(70.0)
    assert world.resent == resent
    assert not world.topic.sent
