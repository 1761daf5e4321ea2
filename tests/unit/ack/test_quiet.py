"""How often acknowledgements are looked after: by ticks of their own while they come, by short looks while few do."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import _pulsar
import pulsar
import pytest

from pulsar_ext._native.seek_gate import SeekGate
from pulsar_ext._runtime.ending import OpenSenders
from pulsar_ext._runtime.scheduler import LOOK_SECONDS, ConnectionLooks
from pulsar_ext.ack.acknowledger import Acknowledger
from pulsar_ext.ack.delivery import AckGrouping
from pulsar_ext.message import received
from pulsar_ext.receive.order import ReceiveOrder

TOPIC = "persistent://public/default/t"


class _Inner:
    """What takes acknowledgements as a C++ consumer does, and answers when it is asked."""

    def __init__(self):
        self.connected, self.acknowledged, self.asked = True, [], 0
        self.answers = pulsar.Result.Ok

    def is_connected(self):
        return self.connected

    def acknowledge(self, one):
        self.acknowledged.append(one)

    def get_last_message_id_async(self, answer):
        self.asked += 1
        answer(self.answers)


class _Driven:
    """A consumer's acknowledgements with a clock, and a scheduler that is no thread; `ticks` counts its ticks."""

    def __init__(self, monkeypatch):
        self.now, self.due, self.ticks, self.entry = 1000.0, {}, 0, 0
        clock = SimpleNamespace(monotonic=lambda: self.now)
        for module in ("ack.acknowledger", "_runtime.scheduler"):
            monkeypatch.setattr(f"pulsar_ext.{module}.time", clock)
        self.inner, self.scheduler = _Inner(), SimpleNamespace(watch=self._watch, keep=lambda _: None)
        looks = ConnectionLooks(self.scheduler)
        inquiries = SimpleNamespace(run=lambda _: None, watch=lambda _: None)
        context = SimpleNamespace(
            scheduler=self.scheduler,
            senders=OpenSenders(),
            connection_looks=looks,
            inquiries=inquiries,
            cluster=SimpleNamespace(number=lambda: 0),
        )
        self.acks = Acknowledger(
            context,
            ReceiveOrder(),
            SeekGate(None),
            TOPIC,
            "s",
            grouping=AckGrouping.of(None, None, splits=False),
            splits=False,
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
        """Let so much time pass."""
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
    """Acknowledgements, and what drives them."""
    return _Driven(monkeypatch)


def test_a_lone_acknowledgement_needs_few_ticks(driven):
    """The broker knows the consumer, it leaves in time, is proven to have arrived, and that is all."""
    driven.acknowledge()
    driven.run(0.05)
    assert len(driven.inner.acknowledged) == 1
    driven.run(5.0)
    assert len(driven.inner.acknowledged) == 1
    assert driven.inner.asked == 2
    assert driven.ticks <= 8
    assert not driven.due, "nothing is looked after any more"


@pytest.mark.parametrize(("seconds", "questions"), [(0.05, 1), (1.0, 2)])
def test_what_is_acknowledged_right_behind_the_opening_needs_no_question(driven, seconds, questions):
    """The broker knew the consumer then; a while later the connection may be another one, and as new as this."""
    driven.acks.attach(driven.inner, driven.now - 0.02)
    driven.run(seconds)
    driven.acknowledge()
    driven.run(5.0)
    assert (len(driven.inner.acknowledged), driven.inner.asked) == (1, questions)


def test_an_opening_that_took_long_proves_nothing(driven):
    """The connection may have been lost behind the broker's answer, and made anew."""
    driven.acks.attach(driven.inner, driven.now - 0.1)
    driven.acknowledge()
    driven.run(5.0)
    assert driven.inner.asked == 2


def test_who_cannot_be_asked_sends_again(driven):
    """A consumer of several topics or partitions may be on a connection as new as the first acknowledgement."""
    driven.inner.answers = pulsar.Result.OperationNotSupported
    driven.acknowledge()
    driven.run(5.0)
    assert (len(driven.inner.acknowledged), driven.inner.asked) == (2, 1)


@pytest.mark.parametrize("seconds", [0.5, 2.0, 5.0, 40.0])
def test_what_left_before_the_broker_knew_the_consumer_leaves_again(driven, seconds):
    """However long the broker takes behind a reconnection: what left before and meanwhile leaves once more then."""
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
    again = len(driven.inner.acknowledged)
    driven.run(100.0)
    assert len(driven.inner.acknowledged) == again


def test_a_starved_thread_sends_little_again(driven):
    """Where a short disconnection may have gone unseen, what left in the second before leaves again, and once."""
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


def test_what_is_sent_again_does_not_add_up(driven):
    """A consumer that cannot ask, and misses a look every two seconds, sends nothing more than twice."""
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


def test_one_a_second_is_looked_after_by_short_looks(driven):
    """Of a minute's 1,500 looks, one in seven is a tick; each leaves once and in time, with one question."""
    for number in range(60):
        driven.acknowledge()
        driven.run(0.05)
        assert len(driven.inner.acknowledged) in (number + 1, number + 2)
        driven.run(0.95)
    assert driven.ticks < 1500 / 7
    assert driven.inner.asked <= 61


def test_what_left_is_sent_again_behind_a_short_disconnection(driven):
    """The looks see one of 90 ms, the shortest that there is, whenever it comes before the arrival is proven."""
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


def test_what_is_acknowledged_without_a_connection_leaves_with_the_next(driven):
    """However long that takes, and soon then."""
    driven.acknowledge()
    driven.run(2.0)
    driven.inner.connected = False
    driven.run(7.0)
    driven.acknowledge()
    driven.run(7.0)
    before = len(driven.inner.acknowledged)
    driven.inner.connected = True
    driven.run(LOOK_SECONDS * 3)
    assert len(driven.inner.acknowledged) > before
