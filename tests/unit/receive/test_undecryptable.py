"""Counts of received messages, and the entries probed before a topic is consumed undecrypted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_ext._native.results import Timeout
from pulsar_ext.receive.undecryptable import Flow, _ends


def nothing(_):
    """Receive nothing in time."""
    raise Timeout("Pulsar error: TimeOut")


def test_flow_is_idle_only_after_an_empty_receive():
    """The queue counts as empty after a receive without a message, while such receives continue."""
    flow = Flow()
    assert not flow.is_idle()
    assert not flow.is_idle()  # without receives the queue may be full
    with pytest.raises(Timeout):
        flow.counting(nothing)(100)
    assert flow.is_idle()
    assert not flow.is_idle()


def test_flow_is_busy_while_messages_arrive():
    """A message since the last check makes the queue count as used, though a later receive found none."""
    flow = Flow()
    flow.is_idle()
    assert flow.counting(str)(5) == "5"
    with pytest.raises(Timeout):
        flow.counting(nothing)(100)
    assert not flow.is_idle()
    assert flow.received == 1


def test_running_listener_is_not_idle():
    """With a listener the queue is empty unless it handles a message, or got one since the last check."""
    flow = Flow(listens=True)
    flow.is_idle()
    assert flow.is_idle()

    def listener(*_):
        assert not flow.is_idle()
        assert not flow.is_idle()

    flow.handling(listener)(None, None)
    assert flow.is_idle()


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 80)), unique_by=lambda one: one[0]))
def test_both_ends_of_a_topic_are_probed(sizes):
    """The first and the last 32 entries are probed, each once, across ledgers."""
    sizes.sort()
    every = [(ledger, entry) for ledger, entries in sizes for entry in range(entries)]
    assert sorted(_ends(sizes)) == sorted({*every[:32], *every[-32:]})
