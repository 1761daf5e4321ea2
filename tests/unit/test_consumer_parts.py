"""The structure of consumers and readers: few bases, every public method in one class, and parts in one order."""

from __future__ import annotations

import pytest

from pulsar_ext.consumer import Consumer
from pulsar_ext.reader import Reader
from pulsar_ext.receive.order import Part, ReceiveOrder, TransitionSubscriber


def own_bases(cls):
    """Return the bases of this library, without the handle of the official class."""
    return [
        base for base in cls.__mro__[1:] if base.__module__.startswith("pulsar_ext") and "Handle" not in base.__name__
    ]


@pytest.mark.parametrize("cls", [Consumer, Reader])
def test_class_has_few_bases_and_every_public_method(cls):
    """A consumer and a reader have at most two bases, and their own class shows every public method."""
    bases = own_bases(cls)
    assert len(bases) <= 2
    public = {name for base in bases for name in vars(base) if not name.startswith("_")}
    assert public <= {"inner"} | set(vars(cls))


def test_parts_are_called_in_one_order():
    """A transition calls the parts in the order of `Part`, in whatever order they were added."""
    order, added = ReceiveOrder(), []
    for part in (Part.AWAITED, Part.ACKS, Part.NATIVE, Part.COMPACTION, Part.SOURCE, Part.REDELIVERY):
        subscriber = type(part.name, (TransitionSubscriber,), {"part": part})()
        added.append(subscriber)
        order.add_subscriber(subscriber)
    assert [one.part for one in order._subscribers] == sorted(one.part for one in added)
