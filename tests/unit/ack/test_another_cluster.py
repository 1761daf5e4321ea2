"""Acknowledgements of another cluster than the connected one: they are dropped, never sent."""

from __future__ import annotations

from types import SimpleNamespace

import _pulsar
import pytest

from pulsar_ext._native.seek_gate import SeekGate
from pulsar_ext._runtime.ending import OpenSenders
from pulsar_ext._runtime.scheduler import ConnectionPolls
from pulsar_ext.ack.acknowledger import Acknowledger
from pulsar_ext.ack.delivery import AckGrouping
from pulsar_ext.message import Received, at_cluster, received
from pulsar_ext.receive.order import ReceiveOrder, Transition

EMPTY = b"\x00\x00\x00\x02\x18\x00"


class Inner:
    """A fake native consumer that records acknowledgements."""

    def __init__(self):
        self.acknowledged = []

    def is_connected(self):
        return True

    def acknowledge(self, one):
        self.acknowledged.append(one)

    acknowledge_cumulative = acknowledge


class Consumer:
    """The acknowledgements of a consumer whose client may connect to another cluster."""

    def __init__(self):
        self.cluster, self.inner, self.order = 0, Inner(), ReceiveOrder()
        scheduler = SimpleNamespace(watch=lambda *_: None, keep=lambda _: None)
        context = SimpleNamespace(
            scheduler=scheduler,
            senders=OpenSenders(),
            connection_polls=ConnectionPolls(scheduler),
            inquiries=scheduler,
            cluster=SimpleNamespace(number=lambda: self.cluster),
        )
        grouping = AckGrouping.of(None, None, is_shared=False)
        options = {"grouping": grouping, "is_shared": False, "keeps_indexes": True}
        self.acks = Acknowledger(context, self.order, SeekGate(None), "persistent://a/b/t", "s", **options)
        self.order.add_subscriber(self.acks)
        self.acks.attach(self.inner)

    def acknowledge(self, entry, *, cumulative=False):
        batch = _pulsar.MessageBatch()
        batch.with_message_id(_pulsar.MessageId(-1, 5, entry, -1))
        batch.parse_from(EMPTY, 1)
        inbox = self.acks.inbox.positions if cumulative else self.acks.inbox.messages
        self.acks.put(inbox, *map(received, batch.messages()))

    def change_cluster(self, during=()):
        with self.order.run_transition(Transition.ANOTHER_CLUSTER):
            self.order.cluster = self.cluster
        for entry in during:
            self.acknowledge(entry)
        self.inner = Inner()
        self.acks.on_reopen(self.inner, iter(()))


@pytest.mark.parametrize("cumulative", [False, True], ids=["each", "cumulative"])
def test_nothing_is_sent_to_another_cluster(cumulative):
    """Sent acknowledgements are not resent, pending ones are dropped, and those of the new cluster are sent."""
    consumer = Consumer()
    consumer.acknowledge(1, cumulative=cumulative)
    assert consumer.acks.flush()
    consumer.acknowledge(2, cumulative=cumulative)
    sent, first = len(consumer.inner.acknowledged), consumer.inner
    consumer.cluster = 1
    assert not consumer.acks.flush()
    assert consumer.acks.pending == 1
    consumer.change_cluster(during=[2, 3])
    assert consumer.acks.pending == 0
    assert consumer.acks.flush()
    assert (len(first.acknowledged), consumer.inner.acknowledged) == (sent, [])
    consumer.acknowledge(3)
    assert consumer.acks.flush()
    assert consumer.inner.acknowledged


def test_failed_cluster_change_sends_nothing():
    """Acknowledgements of the first cluster are dropped before the native consumer is opened, also if this fails."""
    consumer = Consumer()
    consumer.acknowledge(1)
    consumer.cluster = 1
    with pytest.raises(ConnectionError), consumer.order.run_transition(Transition.ANOTHER_CLUSTER):
        raise ConnectionError
    assert consumer.acks.pending == 0
    assert not consumer.acks.flush()


def test_message_class_has_its_cluster():
    """Each cluster has a message class of its own, derived from the first one's."""
    first = at_cluster(Received, 0)
    second = at_cluster(first, 1)
    third = at_cluster(second, 2)
    assert first is Received
    assert at_cluster(second, 1) is second
    assert [one.cluster for one in (first, second, third)] == [0, 1, 2]
    assert third.__mro__[1] is Received
