"""Replies find their request, each is handed out once, and a request ends when its repliers have said all."""

from __future__ import annotations

import gc

import pulsar
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_ext import InvalidUse, NoReply, RequestFailed
from pulsar_ext.request.envelope import Answer, Reply, in_same_namespace, request_properties
from pulsar_ext.request.requester import Correlations, Exchange, check_request


class _Message:
    def __init__(self, properties):
        self._properties = properties

    def properties(self):
        return self._properties


def exchange(repliers=1, came=None):
    return Exchange((came if came is not None else []).append, "asked", repliers, 1_000)


def answer(asked, replier="r"):
    properties = request_properties({"mine": "1"}, asked.correlation_id, "replies")
    made = Answer.to(properties, replier)
    assert made is not None
    assert made.topic == "replies"
    return made


def stream(asked, count, replier="r"):
    """What a replier says that gives several replies."""
    said = answer(asked, replier)
    return [_Message(said.next()) for _ in range(count)] + [_Message(said.end())]


def test_a_reply_is_for_its_request_alone():
    """Two requests wait, and each gets its own reply; one that nobody waits for is dropped."""
    correlations, mine, others = Correlations(), [], []
    first, second = exchange(came=mine), exchange(came=others)
    for one in (first, second):
        correlations.begin(one)
    reply = _Message(answer(second).only())
    correlations.hand_over(reply)
    correlations.hand_over(_Message(answer(exchange()).only()))
    correlations.hand_over(_Message({}))
    assert (mine, others) == ([], [reply])
    assert second.take(reply) is reply
    assert second.is_done
    assert not first.is_done


@given(
    counts=st.lists(st.integers(0, 4), min_size=1, max_size=3),
    data=st.data(),
)
def test_every_reply_is_handed_out_once(counts, data):
    """Several repliers, of which some die and begin anew, in any order: each reply once, the end behind the last."""
    asked = exchange(repliers=len(counts))
    said = []
    for number, count in enumerate(counts):
        whole = stream(asked, count, f"r{number}")
        begun = data.draw(st.integers(0, count))
        said += [*whole[:begun], *whole]  # it died behind so many
    order = data.draw(st.permutations(said))
    handed, done_at = [], None
    for place, message in enumerate(order):
        taken = asked.take(message)
        if taken is not None:
            handed.append((taken.properties()["REPLIER"], taken.properties()["REPLY_INDEX"]))
        if asked.is_done and done_at is None:
            done_at = place
    assert sorted(handed) == sorted((f"r{n}", str(i)) for n, count in enumerate(counts) for i in range(count))
    assert done_at is not None
    assert not any(map(says_more(order[: done_at + 1]), order[done_at + 1 :]))


def says_more(before):
    """Whether a message is a reply that none of those before it is."""
    known = [message.properties() for message in before]
    return lambda message: "REPLY_INDEX" in message.properties() and message.properties() not in known


def test_a_missing_reply_is_waited_for():
    """The end says how many there were: one that is missing keeps the request from ending, and is named as missing."""
    asked = exchange()
    first, _, third, end = stream(asked, 3)
    for message in (first, third, end):
        asked.take(message)
    assert not asked.is_done
    with pytest.raises(NoReply, match="2 replies came") as caught:
        asked.expire()
    assert (caught.value.replies, caught.value.correlation_id) == (2, asked.correlation_id)
    assert isinstance(caught.value, pulsar.Timeout)


def test_nobody_knows_how_many():
    """Without a number of repliers only the time ends a request, and that is no error."""
    asked = exchange(repliers=None)
    for replier in ("a", "b"):
        for message in stream(asked, 1, replier):
            asked.take(message)
    assert not asked.is_done
    asked.expire()
    assert asked.is_done


def test_a_failure_is_raised_and_others_go_on():
    """The text of a `RequestFailed` arrives; of any other error only its name does, and others may still answer."""
    asked = exchange(repliers=2)
    with pytest.raises(RequestFailed, match=r"^no such order$"):
        asked.take(_Message(answer(asked, "a").failed(RequestFailed("no such order"))))
    assert not asked.is_done
    with pytest.raises(RequestFailed) as caught:
        asked.take(_Message(answer(asked, "b").failed(ValueError("password=secret"))))
    assert str(caught.value) == "The replier's handler raised ValueError."
    assert asked.is_done


def test_who_writes_replies_by_hand_needs_the_correlation_id_alone():
    """It is then the only reply; with a place that is no number, or has more digits than Python reads, it is none."""
    assert Reply.of({"CORRELATION_ID": "x"}) == Reply("x")
    assert Reply.of({"REPLY_TOPIC": "x"}) is None
    for index in ("no", "", "٣", "9" * 5_000):
        assert Reply.of({"CORRELATION_ID": "x", "REPLY_INDEX": index}) is None


def test_what_is_dropped_waits_for_nothing():
    """A request that nobody holds any more is forgotten; behind a close each ends with AlreadyClosed."""
    correlations, came = Correlations(), []
    kept, dropped = exchange(came=came), exchange(came=came)
    for one in (kept, dropped):
        correlations.begin(one)
    del one, dropped
    gc.collect()
    correlations.close()
    assert [type(one) for one in came] == [pulsar.AlreadyClosed]
    with pytest.raises(pulsar.AlreadyClosed):
        kept.take(came[0])
    with pytest.raises(pulsar.AlreadyClosed):
        correlations.begin(exchange())


def test_what_cannot_be_asked_is_refused():
    """Repliers and times below 1, and properties that are the requester's own."""
    for repliers, timeout_ms in ((0, 1), (True, 1), (1, 0), (1, 1.5), (1, None)):
        with pytest.raises(InvalidUse):
            check_request(repliers, timeout_ms)
    with pytest.raises(InvalidUse):
        request_properties({"REPLY_TOPIC": "elsewhere"}, "x", "y")


def test_replies_stay_in_the_namespace():
    """Whatever form a topic's name has."""
    assert in_same_namespace("asked", "persistent://public/default/replies")
    assert in_same_namespace("a/b/asked", "non-persistent://a/b/replies")
    assert not in_same_namespace("asked", "public/other/replies")
    assert not in_same_namespace("asked", "a/b")
