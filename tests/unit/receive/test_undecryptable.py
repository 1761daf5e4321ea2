"""Counts of what comes, and which entries are looked at before a topic is consumed undecrypted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_ext._native.results import Timeout
from pulsar_ext.receive.undecryptable import Flow, _ends


def nothing(_):
    """Receive nothing in time."""
    raise Timeout("Pulsar error: TimeOut")


def test_a_flow_is_idle_only_where_a_receive_found_nothing():
    """The queue counts as empty after a receive that found nothing, and as long as such receives go on."""
    flow = Flow()
    assert not flow.is_idle()
    assert not flow.is_idle()  # nobody receives: the queue may be full
    with pytest.raises(Timeout):
        flow.counting(nothing)(100)
    assert flow.is_idle()
    assert not flow.is_idle()


def test_a_flow_is_busy_while_messages_come():
    """A message since the last look makes the queue count as used, though a receive found nothing after it."""
    flow = Flow()
    flow.is_idle()
    assert flow.counting(str)(5) == "5"
    with pytest.raises(Timeout):
        flow.counting(nothing)(100)
    assert not flow.is_idle()
    assert flow.received == 1


def test_a_listener_at_work_is_not_idle():
    """With a listener the queue is empty unless it handles a message, or has got one since the last look."""
    flow = Flow(listens=True)
    flow.is_idle()
    assert flow.is_idle()

    def listener(*_):
        assert not flow.is_idle()
        assert not flow.is_idle()

    flow.handling(listener)(None, None)
    assert flow.is_idle()


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 80)), unique_by=lambda one: one[0]))
def test_both_ends_of_a_topic_are_looked_at(sizes):
    """The first and the last 32 entries are looked at, each once, whatever ledgers they are in."""
    sizes.sort()
    every = [(ledger, entry) for ledger, entries in sizes for entry in range(entries)]
    assert sorted(_ends(sizes)) == sorted({*every[:32], *every[-32:]})
