"""Number of ticks, polls and probes: ticks while messages are acknowledged, cheap polls while few are."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import _pulsar
import pulsar
import pytest

from pulsar_ext._native.seek_gate import SeekGate
from pulsar_ext._runtime.ending import OpenSenders
from pulsar_ext._runtime.scheduler import CONNECTION_POLL_SECONDS, ConnectionPolls
from pulsar_ext.ack.acknowledger import Acknowledger
from pulsar_ext.ack.delivery import AckGrouping
from pulsar_ext.message import received
from pulsar_ext.receive.order import ReceiveOrder

TOPIC = "persistent://public/default/t"


class _Inner:
    """A fake native consumer that records acknowledgements and answers requests."""

    def __init__(self):
        self.connected, self.acknowledged, self.probes = True, [], 0
        self.answers = pulsar.Result.Ok

    def is_connected(self):
        return self.connected

    def acknowledge(self, one):
        self.acknowledged.append(one)

    def get_last_message_id_async(self, answer):
        self.probes += 1
        answer(self.answers)


class _Driven:
    """A consumer's acknowledgements with a fake clock and scheduler; `ticks` counts its ticks."""

    def __init__(self, monkeypatch):
        self.now, self.due, self.ticks, self.entry = 1000.0, {}, 0, 0
        clock = SimpleNamespace(monotonic=lambda: self.now)
        for module in ("ack.acknowledger", "_runtime.scheduler"):
            monkeypatch.setattr(f"pulsar_ext.{module}.time", clock)
        self.inner, self.scheduler = _Inner(), SimpleNamespace(watch=self._watch, keep=lambda _: None)
        looks = ConnectionPolls(self.scheduler)
        inquiries = SimpleNamespace(run=lambda _: None, watch=lambda _: None)
        context = SimpleNamespace(
            scheduler=self.scheduler,
            senders=OpenSenders(),
            connection_polls=looks,
            inquiries=inquiries,
            cluster=SimpleNamespace(number=lambda: 0),
        )
        self.acks = Acknowledger(
            context,
            ReceiveOrder(),
            SeekGate(None),
            TOPIC,
            "s",
            grouping=AckGrouping.of(None, None, is_shared=False),
            is_shared=False,
            keeps_indexes=True,
        )
        self.acks.attach(self.inner)

    def acknowledge(self):
        """Acknowledge the next message."""
        batch = _pulsar.MessageBatch()
        batch.with_message_id(_pulsar.MessageId(-1, 5, self.entry, -1))
        batch.parse_from(b"\x00\x00\x00\x02\x18\x00", 1)
        self.acks.add_messages([received(one) for one in batch.messages()])
        self.entry += 1

    def run(self, seconds):
        """Let `seconds` pass."""
        end = self.now + seconds
        while self.due and min(self.due.values()) <= end:
            one = min(self.due, key=self.due.get)
            self.now = max(self.now, self.due.pop(one))
            self.ticks += one is self.acks
            wait = one.tick(self.now)
            if wait is not None:
                self._watch(one, wait)
        self.now = end

    def _watch(self, one, after=0.0):
        self.due[one] = min(self.due.get(one, self.now + after), self.now + after)


@pytest.fixture
def driven(monkeypatch):
    """Acknowledgements with a fake clock and scheduler."""
    return _Driven(monkeypatch)


def test_single_ack_needs_few_ticks(driven):
    """A single acknowledgement is sent in time and proven to have arrived with two probes and few ticks."""
    driven.acknowledge()
    driven.run(0.05)
    assert len(driven.inner.acknowledged) == 1
    driven.run(5.0)
    assert len(driven.inner.acknowledged) == 1
    assert driven.inner.probes == 2
    assert driven.ticks <= 8
    assert not driven.due, "nothing is watched any more"


@pytest.mark.parametrize(("seconds", "probes"), [(0.05, 1), (1.0, 2)])
def test_ack_right_after_opening_needs_no_probe(driven, seconds, probes):
    """The broker knew the consumer at the opening; a while later the connection may be another one."""
    driven.acks.attach(driven.inner, driven.now - 0.02)
    driven.run(seconds)
    driven.acknowledge()
    driven.run(5.0)
    assert (len(driven.inner.acknowledged), driven.inner.probes) == (1, probes)


def test_slow_opening_proves_nothing(driven):
    """The connection may have been lost and reopened after the broker's answer."""
    driven.acks.attach(driven.inner, driven.now - 0.1)
    driven.acknowledge()
    driven.run(5.0)
    assert driven.inner.probes == 2


def test_consumer_without_probe_resends(driven):
    """A consumer of several topics or partitions resends, as its connection may be new."""
    driven.inner.answers = pulsar.Result.OperationNotSupported
    driven.acknowledge()
    driven.run(5.0)
    assert (len(driven.inner.acknowledged), driven.inner.probes) == (2, 1)


@pytest.mark.parametrize("seconds", [0.5, 2.0, 5.0, 40.0])
def test_acks_before_consumer_is_known_are_resent(driven, seconds):
    """Acknowledgements before and during a reconnection are resent when the broker knows the consumer, then never."""
    driven.acknowledge()
    driven.run(1.0)
    driven.inner.connected = False
    driven.run(0.2)
    driven.inner.connected, driven.inner.answers = True, pulsar.Result.BrokerMetadataError
    driven.acknowledge()
    driven.run(seconds)
    known = len(driven.inner.acknowledged)
    driven.inner.answers = pulsar.Result.Ok
    driven.run(2.0)
    assert {str(one) for one in driven.inner.acknowledged[known:]} == {"(5,0,-1,-1)", "(5,1,-1,-1)"}
    resent = len(driven.inner.acknowledged)
    driven.run(100.0)
    assert len(driven.inner.acknowledged) == resent


def test_starved_thread_resends_little(driven):
    """After a gap in the polls the acknowledgements of the second before are resent, once."""
    for _ in range(300):
        driven.acknowledge()
        driven.run(0.01)
    driven.due = dict.fromkeys(driven.due, driven.now + 0.2)
    before = driven.entry
    driven.run(0.3)
    for _ in range(100):
        driven.acknowledge()
        driven.run(0.01)
    driven.run(10.0)
    assert before < len(driven.inner.acknowledged)
    assert driven.entry < len(driven.inner.acknowledged) <= driven.entry + 170


def test_nothing_is_sent_more_than_twice(driven):
    """A consumer without probes that misses a poll every two seconds sends nothing more than twice."""
    driven.inner.answers = pulsar.Result.OperationNotSupported
    for _ in range(10):
        for _ in range(200):
            driven.acknowledge()
            driven.run(0.01)
        driven.due = dict.fromkeys(driven.due, driven.now + 0.2)
        driven.run(0.2)
    driven.run(5.0)
    times = Counter(map(str, driven.inner.acknowledged))
    assert len(times) == driven.entry
    assert max(times.values()) == 2


def test_slow_acks_are_watched_by_cheap_polls(driven):
    """An acknowledgement per second needs a tick for less than one in seven polls, and one probe each."""
    for number in range(60):
        driven.acknowledge()
        driven.run(0.05)
        assert len(driven.inner.acknowledged) in (number + 1, number + 2)
        driven.run(0.95)
    assert driven.ticks < 1500 / 7
    assert driven.inner.probes <= 61


def test_short_disconnection_causes_resend(driven):
    """Polls detect a disconnection of 90 ms, the shortest possible, before the arrival is proven."""
    for millis in range(50, 460, 23):
        driven.acknowledge()
        driven.run(1.6)
        driven.acknowledge()
        driven.run(millis / 1000)
        before = len(driven.inner.acknowledged)
        driven.inner.connected = False
        driven.run(0.09)
        driven.inner.connected = True
        driven.run(0.3)
        assert len(driven.inner.acknowledged) > before, millis
        driven.run(10.0)


def test_acks_without_connection_are_sent_on_the_next(driven):
    """After any time without a connection, acknowledgements are sent soon after the next one is open."""
    driven.acknowledge()
    driven.run(2.0)
    driven.inner.connected = False
    driven.run(7.0)
    driven.acknowledge()
    driven.run(7.0)
    before = len(driven.inner.acknowledged)
    driven.inner.connected = True
    driven.run(CONNECTION_POLL_SECONDS * 3)
    assert len(driven.inner.acknowledged) > before
