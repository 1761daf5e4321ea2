"""The filter that drops redelivered messages which were acknowledged."""

import gc
import math
import weakref
from collections import deque
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_ext._native import core
from pulsar_ext._native.messages import EMPTY_MESSAGE, InnerMessageId, batch_messages
from pulsar_ext.ack.acknowledger import DuplicateFilter
from pulsar_ext.ack.topics import AckCollector
from pulsar_ext.message import Received, received
from pulsar_ext.receive.order import ReceiveOrder

TOPIC = "persistent://public/default/t"
PLACES = [(5, 0, 0), (5, 1, 0), (5, 1, 1), (7, 0, 0)]
SIZES = [1, 2]
"""Number of messages of entries 0 and 1."""


class Inner:
    """Stub of a C++ message."""


def make_filter(topics, queue_size, max_queued):
    """Return a filter that drops nothing, and its order."""
    collector = SimpleNamespace(
        number_of_topics=topics,
        remember=lambda _since: None,
        stop_remembering=lambda: None,
        by_topic=SimpleNamespace(of_message=lambda _inner, _partition: None),
    )
    order = ReceiveOrder()
    return DuplicateFilter(order, collector, queue_size, max_queued), order


@pytest.mark.parametrize(("topics", "queued"), [(1, 100), (3, 300), (300, 1000)])
def test_screening_ends_with_the_queues(topics, queued):
    """Screening ends once as many messages arrived as all receiver queues hold, with those fetched ahead."""
    duplicates, order = make_filter(topics, 100, 1000)
    duplicates.expect(0.0)
    for _ in range(queued + 400):
        duplicates.drops(Inner(), -1, ((5, 0), -1))
        assert order.is_screening
    duplicates.drops(Inner(), -1, ((5, 0), -1))
    assert not order.is_screening


def test_delivered_messages_keep_their_identity():
    """A delivered message stays alive during the screening, so that no later message has its identity."""
    duplicates, _ = make_filter(1, 100, 100)
    duplicates.expect(0.0)
    inner = Inner()
    duplicates.drops(inner, -1, ((5, 0), -1))
    delivered = weakref.ref(inner)
    del inner
    gc.collect()
    assert delivered() is not None
    duplicates.expect(1.0)
    gc.collect()
    assert delivered() is None


class Lossy:
    """A consumer of one topic; at each reconnection its broker has lost all acknowledgements.

    The C++ queue keeps its messages after a reconnection, and the redelivered ones follow.
    """

    def __init__(self, *, fetches):
        self.collector = AckCollector(None, TOPIC, runs=False, keeps_indexes=True)
        self.filter = DuplicateFilter(ReceiveOrder(), self.collector, 1_000, 1_000)
        self.queue, self.made, self.delivered, self.acknowledged = deque(PLACES), deque(), [], set()
        self.filter.expect(-math.inf)
        self.prefetch = None
        if fetches:
            self.prefetch = core.ReceivedBase()
            self.prefetch.message_class = Received

    def fetch(self, count):
        """Take messages from the C++ queue, ahead of their delivery."""
        for _ in range(min(count, len(self.queue))):
            place = ledger, entry, index = self.queue.popleft()
            size = SIZES[entry]
            inner = batch_messages(EMPTY_MESSAGE * size, size, InnerMessageId(0, ledger, entry, -1))[index]
            self.made.append((place, received(inner) if self.prefetch is None else self.prefetch.note(inner)))

    def deliver(self, count):
        """Deliver messages, unless they were acknowledged."""
        self.fetch(count - len(self.made))
        for _ in range(min(count, len(self.made))):
            place, message = self.made.popleft()
            if not message._is_highest_:
                entry_and_index = place[:2], place[2]
                if self.filter.needs_inbox(0, entry_and_index):
                    self.absorb()
                if self.filter.drops(message.inner, 0, entry_and_index):
                    assert place in self.acknowledged
                    continue
            assert place not in self.acknowledged
            self.delivered.append((place, message))

    def acknowledge(self, at):
        """Acknowledge one of the last delivered messages."""
        if self.delivered:
            place, message = self.delivered[-min(at, len(self.delivered))]
            self.acknowledged.add(place)
            self.collector.inbox.messages.append(message)

    def absorb(self, _=0):
        """Read the inbox."""
        self.filter.known = 0
        self.collector.absorb(0.0, lambda: None)

    def reconnect(self, count):
        """Redeliver messages from the first one on."""
        self.queue.extend(PLACES[:count])
        self.filter.expect(-math.inf)


@pytest.mark.parametrize("fetches", [False, True] if core.IS_USED else [False])
@settings(max_examples=300)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["fetch", "deliver", "acknowledge", "absorb", "reconnect"]), st.integers(1, 4)),
        max_size=20,
    )
)
def test_nothing_acknowledged_is_delivered_again(fetches, steps):
    """Screened by the core or one by one, each message is delivered unless it was acknowledged."""
    consumer = Lossy(fetches=fetches)
    for name, count in steps:
        getattr(consumer, name)(count)
