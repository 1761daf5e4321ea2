"""Idle producers of replies: when they are closed, and errors of their closes."""

from types import SimpleNamespace

import pulsar
import pytest

from pulsar_ext.request import ReplyProducers


class _Producer:
    def __init__(self, topic, closed):
        self.topic, self.sender, self._closed = topic, SimpleNamespace(closed=False), closed

    def close(self):
        self._closed.append(self.topic)
        raise pulsar.Timeout(self.topic)


def test_idle_producers_are_closed(caplog):
    """Producers that are idle for a minute are closed; a failed close is logged, and the others are closed."""
    closed, now = [], [0.0]
    producers = ReplyProducers(lambda topic: _Producer(topic, closed), lambda: now[0])
    used = [producers.producer(topic) for topic in "abc"]
    producers.close_idle()
    now[0] = 61.0
    assert producers.producer("a") is used[0]
    assert closed == []
    producers.close_idle()
    assert closed == ["b", "c"]
    assert len(caplog.records) == 2
    assert producers.producer("a") is used[0]
    assert producers.producer("b") is not used[1]


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
