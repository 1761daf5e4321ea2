"""What a request proves that was answered on the same connection: what left before has arrived, the broker knows us."""

from __future__ import annotations

from itertools import pairwise

import pulsar
import pytest

from pulsar_ext._runtime.ending import OpenSenders
from pulsar_ext.ack.cursor import ArrivalProof
from pulsar_ext.ack.delivery import SentAcks
from pulsar_ext.ack.leaving import Leaving


class _Asked:
    """What is asked as a C++ consumer is, and answers when a test says so."""

    def __init__(self):
        self.answers = []

    def get_last_message_id_async(self, answer):
        self.answers.append(answer)


def _sent(now):
    """What left at a time."""
    sent = SentAcks()
    sent.add(Leaving(whole=((5, 0),)), now, {})
    return [sent]


@pytest.fixture
def inner():
    """What is asked."""
    return _Asked()


def test_an_answer_proves_what_left_before_the_request(inner):
    """Nothing is concluded until it is there, and then only for what the C++ client has surely sent before it."""
    proof, sent = ArrivalProof(OpenSenders().answer_to), _sent(90.0)
    assert proof.look(inner, 100.0, sent, is_settled=True) < 99.0
    assert proof.look(inner, 101.5, sent, is_settled=True) < 99.0
    inner.answers[0](pulsar.Result.Ok)
    assert 99.0 < proof.look(inner, 102.0, sent, is_settled=True) < 100.0


def test_nothing_is_asked_that_no_answer_could_prove(inner):
    """What left just now may still be with the C++ client: asking waits until it is not."""
    proof, sent = ArrivalProof(OpenSenders().answer_to), _sent(100.0)
    proof.look(inner, 100.1, sent, is_settled=True)
    assert not inner.answers
    proof.look(inner, proof.due(100.1, sent, is_settled=True), sent, is_settled=True)
    inner.answers[0](pulsar.Result.Ok)
    assert proof.look(inner, 101.0, sent, is_settled=True) >= 100.0


def test_at_most_one_request_is_on_its_way(inner):
    """Another one follows a second later, and only behind the answer to the last one."""
    proof, sent = ArrivalProof(OpenSenders().answer_to), _sent(90.0)
    for now in (100.0, 100.2, 109.0):
        proof.look(inner, now, sent, is_settled=True)
    assert len(inner.answers) == 1
    inner.answers[0](pulsar.Result.Ok)
    proof.look(inner, 109.1, sent, is_settled=True)
    proof.look(inner, 109.2, sent, is_settled=True)
    assert len(inner.answers) == 2
    inner.answers[1](pulsar.Result.Ok)
    for now in (109.3, 110.0, 110.2, 110.3):
        proof.look(inner, now, sent, is_settled=True)
    assert len(inner.answers) == 3


def test_an_answer_behind_a_lost_connection_proves_nothing(inner):
    """What was asked on the connection before may be answered on the next one."""
    proof, sent = ArrivalProof(OpenSenders().answer_to), _sent(90.0)
    proof.look(inner, 100.0, sent, is_settled=True)
    proof.doubt(100.2)
    inner.answers[0](pulsar.Result.Ok)
    assert proof.look(inner, 100.5, sent, is_settled=True) < 99.0


def test_who_cannot_be_asked_is_not_asked_again(inner):
    """What left on a dead connection is kept until the C++ client has noticed that."""
    proof, sent = ArrivalProof(OpenSenders().answer_to), _sent(90.0)
    proof.look(inner, 100.0, sent, is_settled=True)
    inner.answers[0](pulsar.Result.OperationNotSupported)
    for now in (101.0, 103.0, 200.0):
        assert now - 70.0 < proof.look(inner, now, sent, is_settled=True) < now - 60.0
        assert proof.due(now, sent, is_settled=True) > now + 1.0
    assert len(inner.answers) == 1


def test_an_answer_behind_a_doubt_proves_that_the_broker_knows_the_consumer(inner):
    """It is asked as soon as it may know it, and it has known it since that request; what left before is not proven."""
    proof, sent = ArrivalProof(OpenSenders().answer_to), _sent(90.0)
    proof.doubt(100.1)
    proof.look(inner, 100.0, sent, is_settled=False)
    assert not inner.answers
    proof.look(inner, proof.due(100.0, sent, is_settled=False), sent, is_settled=False)
    assert proof.known is None
    inner.answers[0](pulsar.Result.Ok)
    assert proof.look(inner, 100.2, sent, is_settled=False) < 90.0
    assert proof.known == 100.1
    proof.doubt(101.0)
    assert proof.known is None


def test_a_broker_that_does_not_know_the_consumer_is_asked_until_it_does(inner):
    """It refuses each request; it is asked again soon, then less and less often."""
    proof, sent, asked, now = ArrivalProof(OpenSenders().answer_to), _sent(90.0), [], 100.0
    while proof.known is None and now < 200.0:
        proof.look(inner, now, sent, is_settled=False)
        if len(inner.answers) > len(asked):
            asked.append(now)
            inner.answers[-1](pulsar.Result.BrokerMetadataError if now < 105.0 else pulsar.Result.Ok)
        now = max(proof.due(now, sent, is_settled=False), now + 0.01)
    pauses = [later - earlier for earlier, later in pairwise(asked)]
    assert proof.known == asked[-1] < 106.0
    assert pauses == sorted(pauses)
    assert 0.09 < pauses[0] < pauses[-1] <= 1.0


def test_where_much_may_not_have_arrived_it_is_asked_more_often(inner):
    """All of it leaves again behind a doubt: less is kept that way."""
    counts = []
    for entries in (1, 1_000):
        proof, inner, sent = ArrivalProof(OpenSenders().answer_to), _Asked(), SentAcks()
        sent.add(Leaving(whole=tuple((5, entry) for entry in range(entries))), 90.0, {})
        for tick in range(100):
            proof.look(inner, 100.0 + tick / 25, [sent], is_settled=True)
            if inner.answers:
                inner.answers[-1](pulsar.Result.Ok)
        counts.append(len(inner.answers))
    assert counts[0] == 4
    assert 12 <= counts[1] <= 16
