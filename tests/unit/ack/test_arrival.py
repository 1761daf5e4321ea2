"""What has surely arrived: what left before a request that was answered on the same connection."""

from __future__ import annotations

import pulsar
import pytest

from pulsar_ext._runtime.ending import OpenSenders
from pulsar_ext.ack.arrival import ArrivalProof
from pulsar_ext.ack.in_flight import SentAcks
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
    assert proof.look(inner, 100.0, sent) < 99.0
    assert proof.look(inner, 101.5, sent) < 99.0
    inner.answers[0](pulsar.Result.Ok)
    assert 99.0 < proof.look(inner, 102.0, sent) < 100.0


def test_nothing_is_asked_that_no_answer_could_prove(inner):
    """What left just now may still be with the C++ client: asking waits until it is not."""
    proof, sent = ArrivalProof(OpenSenders().answer_to), _sent(100.0)
    proof.look(inner, 100.1, sent)
    assert not inner.answers
    proof.look(inner, proof.due(100.1, sent), sent)
    inner.answers[0](pulsar.Result.Ok)
    assert proof.look(inner, 101.0, sent) >= 100.0


def test_at_most_one_request_is_on_its_way(inner):
    """Another one follows a second later, and only behind the answer to the last one."""
    proof, sent = ArrivalProof(OpenSenders().answer_to), _sent(90.0)
    for now in (100.0, 100.2, 109.0):
        proof.look(inner, now, sent)
    assert len(inner.answers) == 1
    inner.answers[0](pulsar.Result.Ok)
    proof.look(inner, 109.1, sent)
    proof.look(inner, 109.2, sent)
    assert len(inner.answers) == 2
    inner.answers[1](pulsar.Result.Ok)
    for now in (109.3, 110.0, 110.2, 110.3):
        proof.look(inner, now, sent)
    assert len(inner.answers) == 3


def test_an_answer_behind_a_lost_connection_proves_nothing(inner):
    """What was asked on the connection before may be answered on the next one."""
    proof, sent = ArrivalProof(OpenSenders().answer_to), _sent(90.0)
    proof.look(inner, 100.0, sent)
    proof.doubt()
    inner.answers[0](pulsar.Result.Ok)
    assert proof.look(inner, 100.5, sent) < 99.0


def test_who_cannot_be_asked_is_not_asked_again(inner):
    """What left on a dead connection is kept until the C++ client has noticed that."""
    proof, sent = ArrivalProof(OpenSenders().answer_to), _sent(90.0)
    proof.look(inner, 100.0, sent)
    inner.answers[0](pulsar.Result.OperationNotSupported)
    for now in (101.0, 103.0, 200.0):
        assert now - 70.0 < proof.look(inner, now, sent) < now - 60.0
        assert proof.due(now, sent) > now + 1.0
    assert len(inner.answers) == 1
