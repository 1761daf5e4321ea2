"""Requests as proof: what was sent before them has arrived, and the broker knows the consumer."""

from __future__ import annotations

from itertools import pairwise

import pulsar

from pulsar_ext.ack.delivery import ArrivalProof, SentAcks
from pulsar_ext.ack.groups import AckGroup


class _Asked:
    """A proof with requests that a test answers; `asked` has the times of the requests."""

    def __init__(self):
        self.proof, self.asked, self.result = ArrivalProof(), [], None

    def poll(self, now, sent, *, is_stable=True):
        """Poll, and return the time before which everything sent has arrived."""
        result, self.result = self.result, None
        if self.proof.poll(now, sent, result, is_stable=is_stable):
            self.asked.append(now)
        return self.proof.arrived(now)


def _sent(now):
    """Return an entry sent at a time."""
    sent = SentAcks()
    sent.add(AckGroup(whole=((5, 0),)), now, {})
    return [sent]


def test_answer_proves_arrival_of_earlier_acks():
    """An answer proves the arrival of what the C++ client has surely sent before the request."""
    driven, sent = _Asked(), _sent(90.0)
    assert driven.poll(100.0, sent) < 99.0
    assert driven.poll(101.5, sent) < 99.0
    driven.result = pulsar.Result.Ok
    assert 99.0 < driven.poll(102.0, sent) < 100.0


def test_probe_waits_until_it_can_prove_arrival():
    """A request is sent only when the C++ client has surely sent the acknowledgements."""
    driven, sent = _Asked(), _sent(100.0)
    driven.poll(100.1, sent)
    assert not driven.asked
    driven.poll(driven.proof.due(100.1, sent, is_stable=True), sent)
    driven.result = pulsar.Result.Ok
    assert driven.poll(101.0, sent) >= 100.0


def test_at_most_one_probe_is_in_flight():
    """The next request is sent a second later, and only after the answer to the last one."""
    driven, sent = _Asked(), _sent(90.0)
    for now in (100.0, 100.2, 109.0):
        driven.poll(now, sent)
    assert len(driven.asked) == 1
    driven.result = pulsar.Result.Ok
    driven.poll(109.1, sent)
    driven.poll(109.2, sent)
    assert len(driven.asked) == 2
    driven.result = pulsar.Result.Ok
    for now in (109.3, 110.0, 110.2, 110.3):
        driven.poll(now, sent)
    assert len(driven.asked) == 3


def test_answer_after_disconnection_proves_nothing():
    """A request of the lost connection may be answered on the next one."""
    driven, sent = _Asked(), _sent(90.0)
    driven.poll(100.0, sent)
    driven.proof.doubt(100.2)
    driven.result = pulsar.Result.Ok
    assert driven.poll(100.5, sent) < 99.0


def test_unsupported_probe_is_not_repeated():
    """Acknowledgements are kept until the C++ client would have noticed a dead connection."""
    driven, sent = _Asked(), _sent(90.0)
    driven.poll(100.0, sent)
    driven.result = pulsar.Result.OperationNotSupported
    for now in (101.0, 103.0, 200.0):
        assert now - 70.0 < driven.poll(now, sent) < now - 60.0
        assert driven.proof.due(now, sent, is_stable=True) > now + 1.0
    assert len(driven.asked) == 1


def test_answer_after_doubt_proves_consumer_is_known():
    """The answer proves that the broker has known the consumer since the request, but no earlier arrival."""
    driven, sent = _Asked(), _sent(90.0)
    proof = driven.proof
    proof.doubt(100.1)
    driven.poll(100.0, sent, is_stable=False)
    assert not driven.asked
    driven.poll(proof.due(100.0, sent, is_stable=False), sent, is_stable=False)
    assert proof.known_since is None
    driven.result = pulsar.Result.Ok
    assert driven.poll(100.2, sent, is_stable=False) < 90.0
    assert proof.known_since == 100.1
    proof.doubt(101.0)
    assert proof.known_since is None


def test_probe_is_retried_until_consumer_is_known():
    """The pauses between rejected requests begin short and grow."""
    driven, sent, now = _Asked(), _sent(90.0), 100.0
    while driven.proof.known_since is None and now < 200.0:
        before = len(driven.asked)
        driven.poll(now, sent, is_stable=False)
        if len(driven.asked) > before:
            driven.result = pulsar.Result.BrokerMetadataError if now < 105.0 else pulsar.Result.Ok
        now = max(driven.proof.due(now, sent, is_stable=False), now + 0.01)
    pauses = [later - earlier for earlier, later in pairwise(driven.asked)]
    assert driven.proof.known_since == driven.asked[-1] < 106.0
    assert pauses == sorted(pauses)
    assert 0.09 < pauses[0] < pauses[-1] <= 1.0


def test_probes_are_frequent_with_many_unconfirmed_acks():
    """With many unconfirmed acknowledgements requests are more frequent, so that fewer must be resent."""
    counts = []
    for entries in (1, 1_000):
        driven, sent = _Asked(), SentAcks()
        sent.add(AckGroup(whole=tuple((5, entry) for entry in range(entries))), 90.0, {})
        for tick in range(100):
            driven.poll(100.0 + tick / 25, [sent])
            if driven.proof.is_asking:
                driven.result = pulsar.Result.Ok
        counts.append(len(driven.asked))
    assert counts[0] == 4
    assert 12 <= counts[1] <= 16
