"""The producers of replies that nobody uses any more: when they are closed, and what becomes of an error there."""

from types import SimpleNamespace

import pulsar

from pulsar_ext.request.replier import ReplyProducers


class _Producer:
    def __init__(self, topic, closed):
        self.topic, self.sender, self._closed = topic, SimpleNamespace(closed=False), closed

    def send_async(self, _, callback, **__):
        callback(pulsar.Result.Ok, None)

    def close(self):
        self._closed.append(self.topic)
        raise pulsar.Timeout(self.topic)


def test_what_is_idle_is_closed_apart_from_a_send(caplog):
    """A send closes nothing, for it may be made in an event loop; an error of a close is logged, the others go on."""
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
