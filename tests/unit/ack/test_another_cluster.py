"""Acknowledgements of another cluster than the one that the client is connected to: nothing is sent, all is dropped."""

from __future__ import annotations

from types import SimpleNamespace

import _pulsar
import pytest

from pulsar_ext._native.seek_gate import SeekGate
from pulsar_ext._runtime.ending import OpenSenders
from pulsar_ext._runtime.scheduler import ConnectionLooks
from pulsar_ext.ack.acknowledger import Acknowledger
from pulsar_ext.ack.delivery import AckGrouping
from pulsar_ext.message import Received, at_cluster, received
from pulsar_ext.receive.order import ReceiveOrder, Transition

EMPTY = b"\x00\x00\x00\x02\x18\x00"


class Inner:
    """Takes acknowledgements as a native consumer does."""

    def __init__(self):
        self.taken = []

    def is_connected(self):
        return True

    def acknowledge(self, one):
        self.taken.append(one)

    acknowledge_cumulative = acknowledge


class Consumer:
    """The acknowledgements of a consumer whose client may be connected to another cluster."""

    def __init__(self):
        self.cluster, self.inner, self.order = 0, Inner(), ReceiveOrder()
        scheduler = SimpleNamespace(watch=lambda *_: None, keep=lambda _: None)
        context = SimpleNamespace(
            scheduler=scheduler,
            senders=OpenSenders(),
            connection_looks=ConnectionLooks(scheduler),
            inquiries=scheduler,
            cluster=SimpleNamespace(number=lambda: self.cluster),
        )
        grouping = AckGrouping.of(None, None, splits=False)
        options = {"grouping": grouping, "splits": False, "keeps_indexes": True}
        self.acks = Acknowledger(context, self.order, SeekGate(None), "persistent://a/b/t", "s", **options)
        self.order.take_part(self.acks)
        self.acks.attach(self.inner)

    def acknowledge(self, entry, *, cumulative=False):
        batch = _pulsar.MessageBatch()
        batch.with_message_id(_pulsar.MessageId(-1, 5, entry, -1))
        batch.parse_from(EMPTY, 1)
        inbox = self.acks.inbox.positions if cumulative else self.acks.inbox.messages
        self.acks.put(inbox, *map(received, batch.messages()))

    def follow(self, meanwhile=()):
        with self.order.passing(Transition.ANOTHER_CLUSTER):
            self.order.cluster = self.cluster
        for entry in meanwhile:
            self.acknowledge(entry)
        self.inner = Inner()
        self.acks.renew(self.inner, iter(()))


@pytest.mark.parametrize("cumulative", [False, True], ids=["each", "cumulative"])
def test_nothing_is_sent_to_another_cluster(cumulative):
    """What was sent is not sent again, what is pending is dropped, and what is received there is sent."""
    consumer = Consumer()
    consumer.acknowledge(1, cumulative=cumulative)
    assert consumer.acks.flush()
    consumer.acknowledge(2, cumulative=cumulative)
    sent, first = len(consumer.inner.taken), consumer.inner
    consumer.cluster = 1
    assert not consumer.acks.flush()
    assert consumer.acks.pending == 1
    consumer.follow(meanwhile=[2, 3])
    assert consumer.acks.pending == 0
    assert consumer.acks.flush()
    assert (len(first.taken), consumer.inner.taken) == (sent, [])
    consumer.acknowledge(3)
    assert consumer.acks.flush()
    assert consumer.inner.taken


def test_a_change_that_fails_sends_nothing_either():
    """What is of the first cluster is dropped before another native object is opened, and stays dropped."""
    consumer = Consumer()
    consumer.acknowledge(1)
    consumer.cluster = 1
    with pytest.raises(ConnectionError), consumer.order.passing(Transition.ANOTHER_CLUSTER):
        raise ConnectionError
    assert consumer.acks.pending == 0
    assert not consumer.acks.flush()


def test_a_message_knows_its_cluster():
    """Each cluster has a class of its own, that derives from the first one's and not from another cluster's."""
    first = at_cluster(Received, 0)
    second = at_cluster(first, 1)
    third = at_cluster(second, 2)
    assert first is Received
    assert at_cluster(second, 1) is second
    assert [one.cluster for one in (first, second, third)] == [0, 1, 2]
    assert third.__mro__[1] is Received
