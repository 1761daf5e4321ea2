"""Replies reach their request, each is returned once, and a request ends when its repliers have sent everything."""

from __future__ import annotations

import gc

import pulsar
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_ext import InvalidUse, NoReply, RequestFailed
from pulsar_ext.request import (
    Answer,
    Correlations,
    Exchange,
    Reply,
    check_request,
    in_same_namespace,
    request_properties,
)


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
    """Return the messages of a replier that sends several replies."""
    messages = answer(asked, replier)
    return [_Message(messages.next()) for _ in range(count)] + [_Message(messages.end())]


def test_reply_is_delivered_to_its_request_only():
    """Each of two pending requests gets its own reply; a reply without a pending request is dropped."""
    correlations, mine, others = Correlations(), [], []
    first, second = exchange(came=mine), exchange(came=others)
    for one in (first, second):
        correlations.begin(one)
    reply = _Message(answer(second).only())
    correlations.deliver_reply(reply)
    correlations.deliver_reply(_Message(answer(exchange()).only()))
    correlations.deliver_reply(_Message({}))
    assert (mine, others) == ([], [reply])
    assert second.take(reply) is reply
    assert second.is_done
    assert not first.is_done


@given(
    counts=st.lists(st.integers(0, 4), min_size=1, max_size=3),
    data=st.data(),
)
def test_every_reply_is_returned_once(counts, data):
    """Several repliers, some of which die and begin again, in any order: each reply is returned once."""
    asked = exchange(repliers=len(counts))
    messages = []
    for number, count in enumerate(counts):
        whole = stream(asked, count, f"r{number}")
        begun = data.draw(st.integers(0, count))
        messages += [*whole[:begun], *whole]  # the replier died after `begun` replies
    order = data.draw(st.permutations(messages))
    returned, done_at = [], None
    for place, message in enumerate(order):
        taken = asked.take(message)
        if taken is not None:
            returned.append((taken.properties()["REPLIER"], taken.properties()["REPLY_INDEX"]))
        if asked.is_done and done_at is None:
            done_at = place
    assert sorted(returned) == sorted((f"r{n}", str(i)) for n, count in enumerate(counts) for i in range(count))
    assert done_at is not None
    assert not any(map(is_new_after(order[: done_at + 1]), order[done_at + 1 :]))


def is_new_after(before):
    """Return a function that returns whether a message is a reply that is not among earlier ones."""
    known = [message.properties() for message in before]
    return lambda message: "REPLY_INDEX" in message.properties() and message.properties() not in known


def test_missing_reply_keeps_the_request_pending():
    """A missing reply keeps the request pending, and the error counts the replies that arrived."""
    asked = exchange()
    first, _, third, end = stream(asked, 3)
    for message in (first, third, end):
        asked.take(message)
    assert not asked.is_done
    with pytest.raises(NoReply, match="2 replies came") as caught:
        asked.expire()
    assert (caught.value.replies, caught.value.correlation_id) == (2, asked.correlation_id)
    assert isinstance(caught.value, pulsar.Timeout)


def test_unknown_number_of_repliers_ends_by_timeout():
    """Without a number of repliers, the request ends by its timeout, without an error."""
    asked = exchange(repliers=None)
    for replier in ("a", "b"):
        for message in stream(asked, 1, replier):
            asked.take(message)
    assert not asked.is_done
    asked.expire()
    assert asked.is_done


def test_failure_is_raised_and_others_may_reply():
    """The text of a `RequestFailed` arrives, of another error only its class, and others may still reply."""
    asked = exchange(repliers=2)
    with pytest.raises(RequestFailed, match=r"^no such order$"):
        asked.take(_Message(answer(asked, "a").failed(RequestFailed("no such order"))))
    assert not asked.is_done
    with pytest.raises(RequestFailed) as caught:
        asked.take(_Message(answer(asked, "b").failed(ValueError("password=secret"))))
    assert str(caught.value) == "The replier's handler raised ValueError."
    assert asked.is_done


def test_reply_needs_only_a_correlation_id():
    """A correlation id alone marks a single reply; a message with an invalid index is not a reply."""
    assert Reply.of({"CORRELATION_ID": "x"}) == Reply("x")
    assert Reply.of({"REPLY_TOPIC": "x"}) is None
    for index in ("no", "", "٣", "9" * 5_000):
        assert Reply.of({"CORRELATION_ID": "x", "REPLY_INDEX": index}) is None


def test_dropped_requests_are_not_pending():
    """A collected request is not pending any more; a close ends each pending one with AlreadyClosed."""
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


def test_invalid_requests_raise():
    """Repliers and timeouts below 1, and properties that the requester sets itself, raise."""
    for repliers, timeout_ms in ((0, 1), (True, 1), (1, 0), (1, 1.5), (1, None)):
        with pytest.raises(InvalidUse):
            check_request(repliers, timeout_ms)
    with pytest.raises(InvalidUse):
        request_properties({"REPLY_TOPIC": "elsewhere"}, "x", "y")


def test_reply_topics_stay_in_the_namespace():
    """Topics are compared by namespace in every form of their names."""
    assert in_same_namespace("asked", "persistent://public/default/replies")
    assert in_same_namespace("a/b/asked", "non-persistent://a/b/replies")
    assert not in_same_namespace("asked", "public/other/replies")
    assert not in_same_namespace("asked", "a/b")
