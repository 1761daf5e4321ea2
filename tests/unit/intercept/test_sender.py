"""The sender of a producer with interceptors, over one that does as it is told."""

from __future__ import annotations

import types

import pulsar
import pytest

import pulsar_ext
from pulsar_ext.intercept.chain import InterceptedSender, ProducerChain
from pulsar_ext.produce.outcome import SentMany


class Below:
    """A sender whose messages have the outcome that their value says."""

    many_in_flight = None
    context = types.SimpleNamespace(callbacks=types.SimpleNamespace(refuse=lambda _: None))

    def __init__(self):
        self.sent = []

    def topic(self):
        """Give a name."""
        return "t"

    def send(self, content, **options):
        """Send."""
        self.sent.append((content, options))
        if content == b"raise+":
            raise pulsar.Timeout
        return content

    def post(self, content, callback, options, *, patient=False):
        """Send."""
        self.send(content, **options)
        results = {b"fail+": pulsar.Result.Timeout, b"twice+": pulsar_ext.DUPLICATE_MESSAGE}
        callback(results.get(content, pulsar.Result.Ok), pulsar_ext.MessageId(-1, 1, len(self.sent), -1))

    def send_async(self, content, callback, **options):
        """Send."""
        self.post(content, callback, options)

    def send_many(self, contents, columns, *, flush):
        """Refuse nothing."""
        assert (list(contents), columns, flush) == ([], {}, False)

    def flush(self):
        """Flush."""

    def finish(self, deadline):
        """Close."""


class Hears(pulsar_ext.ProducerInterceptor):
    """Adds a `+` to each value and a property, and notes outcomes."""

    def __init__(self):
        self.heard = []

    def before_send(self, producer, message):
        """Change it."""
        return message.replace(value=message.value + b"+").with_properties({"seen": "yes"})

    def on_send_acknowledgement(self, producer, message, message_id, error):
        """Note it."""
        self.heard.append((message.value, message_id is not None, type(error)))

    def close(self):
        """Note it."""
        self.heard.append("closed")


@pytest.fixture
def below():
    """What sends."""
    return Below()


@pytest.fixture
def hears():
    """The interceptor."""
    return Hears()


@pytest.fixture
def sender(below, hears):
    """The sender with interceptors."""
    return InterceptedSender(below, ProducerChain([hears]))


def test_a_send_sends_what_they_give_and_tells_them_its_id(sender, below, hears):
    """The value and the properties that are sent are theirs; the application gets the id."""
    assert sender.send(b"v", {"a": "b"}, partition_key="k") == b"v+"
    assert below.sent == [(b"v+", {"properties": {"a": "b", "seen": "yes"}, "partition_key": "k"})]
    assert hears.heard == [(b"v+", True, type(None))]


def test_a_send_that_raises_is_told_and_raises(sender, hears):
    """The error goes to the interceptors first, and then to the application."""
    with pytest.raises(pulsar.Timeout):
        sender.send(b"raise")
    assert hears.heard == [(b"raise+", False, pulsar.Timeout)]


@pytest.mark.parametrize(
    ("value", "result", "error"),
    [
        (b"v", pulsar.Result.Ok, type(None)),
        (b"fail", pulsar.Result.Timeout, pulsar.Timeout),
        (b"twice", pulsar_ext.DUPLICATE_MESSAGE, pulsar_ext.DuplicateMessage),
    ],
)
def test_an_outcome_is_told_before_the_callback_is_called(sender, hears, value, result, error):
    """What the callback gets as a result, interceptors get as the error that `send()` raises, and before it."""
    order = []
    sender.send_async(value, lambda *given: order.append((given[0], list(hears.heard))))
    assert order == [(result, [(value + b"+", error is type(None), error)])]


def test_without_a_callback_they_hear_of_it_all_the_same(sender, hears):
    """`send_async(…, None)` ignores the outcome; interceptors do not."""
    sender.send_async(b"v", None)
    assert hears.heard == [(b"v+", True, type(None))]


def test_a_message_that_is_refused_at_once_is_told(sender, hears):
    """Where there is no outcome, as nothing was sent, they hear what was raised."""
    with pytest.raises(pulsar.Timeout):
        sender.send_async(b"raise", None)
    assert hears.heard == [(b"raise+", False, pulsar.Timeout)]


def test_a_callback_that_cannot_be_called_is_refused_before_they_see_anything(sender, hears, below):
    """Bad input raises before anything changes."""
    with pytest.raises(TypeError):
        sender.send_async(b"v", 5)
    assert hears.heard == below.sent == []


def test_send_many_goes_message_by_message(sender, below, hears):
    """Each has its own outcome, duplicates are counted, and the last id is given."""
    columns = {"partition_key": ["a", "b", "c"]}
    done = sender.send_many([b"v", b"twice", b"w"], columns, flush=True)
    assert done == SentMany(3, 1, pulsar_ext.MessageId(-1, 1, 3, -1))
    assert [one[1]["partition_key"] for one in below.sent] == ["a", "b", "c"]
    assert [one[0] for one in hears.heard] == [b"v+", b"twice+", b"w+"]
    with pytest.raises(pulsar.Timeout):
        sender.send_many([b"v", b"fail"], {}, flush=True)


def test_everything_else_is_the_senders_and_a_close_closes_them(sender, hears):
    """Names and ids are those of what sends; interceptors are closed behind it."""
    assert sender.topic() == "t"
    sender.finish(0.0)
    assert hears.heard == ["closed"]
