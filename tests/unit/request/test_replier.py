"""Idle producers of replies: when they are closed, and errors of their closes."""

from types import SimpleNamespace

import pulsar
import pytest

from pulsar_ext.request.replier import ReplyProducers


class _Producer:
    def __init__(self, topic, closed):
        self.topic, self.sender, self._closed = topic, SimpleNamespace(closed=False), closed

    def send_async(self, _, callback, **__):
        callback(pulsar.Result.Ok, None)

    def close(self):
        self._closed.append(self.topic)
        raise pulsar.Timeout(self.topic)


def test_idle_producers_are_closed_outside_of_sends(caplog):
    """A send closes nothing, as it may run in an event loop; a failed close is logged, and the others are closed."""
    closed, now = [], [0.0]
    producers = ReplyProducers(lambda topic: _Producer(topic, closed), lambda: now[0])
    for topic in "abc":
        producers.send(topic, b"", {}).result(0)
    assert not producers.has_idle
    now[0] = 61.0
    producers.send("a", b"", {}).result(0)
    assert producers.has_idle
    assert closed == []
    producers.close_idle()
    assert closed == ["b", "c"]
    assert len(caplog.records) == 2
    assert not producers.has_idle
    assert producers.knows("a")


def test_close_closes_each_producer_and_raises():
    """A close that fails for one producer closes the others too, and raises."""
    closed = []
    producers = ReplyProducers(lambda topic: _Producer(topic, closed))
    for topic in "abc":
        producers.producer(topic)
    with pytest.raises(pulsar.Timeout):
        producers.close()
    assert sorted(closed) == ["a", "b", "c"]
    producers.close()
