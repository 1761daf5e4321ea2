"""The filter that drops redelivered messages which were acknowledged."""

import gc
import weakref
from types import SimpleNamespace

import pytest

from pulsar_ext.ack.acknowledger import DuplicateFilter
from pulsar_ext.receive.order import ReceiveOrder


class Inner:
    """Stub of a C++ message."""


def make_filter(topics, queue_size, max_queued):
    """Return a filter that drops nothing, and its order."""
    collector = SimpleNamespace(
        number_of_topics=topics,
        remember=lambda _since: None,
        stop_remembering=lambda: None,
        is_redelivered_duplicate=lambda _inner: False,
    )
    order = ReceiveOrder()
    return DuplicateFilter(order, collector, queue_size, max_queued), order


@pytest.mark.parametrize(("topics", "queued"), [(1, 100), (3, 300), (300, 1000)])
def test_screening_ends_with_the_queues(topics, queued):
    """Screening ends once as many messages arrived as all receiver queues hold, with those fetched ahead."""
    duplicates, order = make_filter(topics, 100, 1000)
    duplicates.expect(0.0)
    for _ in range(queued + 400):
        duplicates.drops(Inner())
        assert order.is_screening
    duplicates.drops(Inner())
    assert not order.is_screening


def test_delivered_messages_keep_their_identity():
    """A delivered message stays alive during the screening, so that no later message has its identity."""
    duplicates, _ = make_filter(1, 100, 100)
    duplicates.expect(0.0)
    inner = Inner()
    duplicates.drops(inner)
    delivered = weakref.ref(inner)
    del inner
    gc.collect()
    assert delivered() is not None
    duplicates.expect(1.0)
    gc.collect()
    assert delivered() is None
