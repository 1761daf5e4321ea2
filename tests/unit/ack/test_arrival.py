"""Requests as proof: what was sent before them has arrived, and the broker knows the consumer."""

from __future__ import annotations

from itertools import pairwise

import pulsar
import pytest

from pulsar_ext._runtime.ending import OpenSenders
from pulsar_ext.ack.cursor import ArrivalProof
from pulsar_ext.ack.delivery import SentAcks
from pulsar_ext.ack.groups import AckGroup


class _Asked:
    """A fake native consumer whose requests a test answers."""

    def __init__(self):
        self.answers = []

    def get_last_message_id_async(self, answer):
        self.answers.append(answer)


def _sent(now):
    """Return an entry sent at a time."""
    sent = SentAcks()
    sent.add(AckGroup(whole=((5, 0),)), now, {})
    return [sent]


@pytest.fixture
def inner():
    """A fake native consumer."""
    return _Asked()


def test_answer_proves_arrival_of_earlier_acks(inner):
    """An answer proves the arrival of what the C++ client has surely sent before the request."""
    proof, sent = ArrivalProof(OpenSenders().answer_to), _sent(90.0)
    assert proof.poll(inner, 100.0, sent, is_stable=True) < 99.0
    assert proof.poll(inner, 101.5, sent, is_stable=True) < 99.0
    inner.answers[0](pulsar.Result.Ok)
    assert 99.0 < proof.poll(inner, 102.0, sent, is_stable=True) < 100.0


def test_probe_waits_until_it_can_prove_arrival(inner):
    """A request is sent only when the C++ client has surely sent the acknowledgements."""
    proof, sent = ArrivalProof(OpenSenders().answer_to), _sent(100.0)
    proof.poll(inner, 100.1, sent, is_stable=True)
    assert not inner.answers
    proof.poll(inner, proof.due(100.1, sent, is_stable=True), sent, is_stable=True)
    inner.answers[0](pulsar.Result.Ok)
    assert proof.poll(inner, 101.0, sent, is_stable=True) >= 100.0


def test_at_most_one_probe_is_in_flight(inner):
    """The next request is sent a second later, and only after the answer to the last one."""
    proof, sent = ArrivalProof(OpenSenders().answer_to), _sent(90.0)
    for now in (100.0, 100.2, 109.0):
        proof.poll(inner, now, sent, is_stable=True)
    assert len(inner.answers) == 1
    inner.answers[0](pulsar.Result.Ok)
    proof.poll(inner, 109.1, sent, is_stable=True)
    proof.poll(inner, 109.2, sent, is_stable=True)
    assert len(inner.answers) == 2
    inner.answers[1](pulsar.Result.Ok)
    for now in (109.3, 110.0, 110.2, 110.3):
        proof.poll(inner, now, sent, is_stable=True)
    assert len(inner.answers) == 3


def test_answer_after_disconnection_proves_nothing(inner):
    """A request of the lost connection may be answered on the next one."""
    proof, sent = ArrivalProof(OpenSenders().answer_to), _sent(90.0)
    proof.poll(inner, 100.0, sent, is_stable=True)
    proof.doubt(100.2)
    inner.answers[0](pulsar.Result.Ok)
    assert proof.poll(inner, 100.5, sent, is_stable=True) < 99.0


def test_unsupported_probe_is_not_repeated(inner):
    """Acknowledgements are kept until the C++ client would have noticed a dead connection."""
    proof, sent = ArrivalProof(OpenSenders().answer_to), _sent(90.0)
    proof.poll(inner, 100.0, sent, is_stable=True)
    inner.answers[0](pulsar.Result.OperationNotSupported)
    for now in (101.0, 103.0, 200.0):
        assert now - 70.0 < proof.poll(inner, now, sent, is_stable=True) < now - 60.0
        assert proof.due(now, sent, is_stable=True) > now + 1.0
    assert len(inner.answers) == 1


def test_answer_after_doubt_proves_consumer_is_known(inner):
    """The answer proves that the broker has known the consumer since the request, but no earlier arrival."""
    proof, sent = ArrivalProof(OpenSenders().answer_to), _sent(90.0)
    proof.doubt(100.1)
    proof.poll(inner, 100.0, sent, is_stable=False)
    assert not inner.answers
    proof.poll(inner, proof.due(100.0, sent, is_stable=False), sent, is_stable=False)
    assert proof.known_since is None
    inner.answers[0](pulsar.Result.Ok)
    assert proof.poll(inner, 100.2, sent, is_stable=False) < 90.0
    assert proof.known_since == 100.1
    proof.doubt(101.0)
    assert proof.known_since is None


def test_probe_is_retried_until_consumer_is_known(inner):
    """The pauses between rejected requests begin short and grow."""
    proof, sent, asked, now = ArrivalProof(OpenSenders().answer_to), _sent(90.0), [], 100.0
    while proof.known_since is None and now < 200.0:
        proof.poll(inner, now, sent, is_stable=False)
        if len(inner.answers) > len(asked):
            asked.append(now)
            inner.answers[-1](pulsar.Result.BrokerMetadataError if now < 105.0 else pulsar.Result.Ok)
        now = max(proof.due(now, sent, is_stable=False), now + 0.01)
    pauses = [later - earlier for earlier, later in pairwise(asked)]
    assert proof.known_since == asked[-1] < 106.0
    assert pauses == sorted(pauses)
    assert 0.09 < pauses[0] < pauses[-1] <= 1.0


def test_probes_are_frequent_with_many_unconfirmed_acks(inner):
    """With many unconfirmed acknowledgements requests are more frequent, so that fewer must be resent."""
    counts = []
    for entries in (1, 1_000):
        proof, inner, sent = ArrivalProof(OpenSenders().answer_to), _Asked(), SentAcks()
        sent.add(AckGroup(whole=tuple((5, entry) for entry in range(entries))), 90.0, {})
        for tick in range(100):
            proof.poll(inner, 100.0 + tick / 25, [sent], is_stable=True)
            if inner.answers:
                inner.answers[-1](pulsar.Result.Ok)
        counts.append(len(inner.answers))
    assert counts[0] == 4
    assert 12 <= counts[1] <= 16
