"""Chains of interceptors: allowed changes, errors, and the intercepted sender."""

from __future__ import annotations

import gc
import types

import pulsar
import pytest

import pulsar_ext
from pulsar_ext.errors import InvalidUse
from pulsar_ext.intercept import (
    ConsumerChain,
    InterceptedSender,
    OutgoingMessage,
    PartitionWatch,
    ProducerChain,
    ReaderChain,
    register_chain,
)
from pulsar_ext.message import Received
from pulsar_ext.produce.outcome import SentMany

PLAIN = types.SimpleNamespace(interceptors=[])


class Producer(pulsar_ext.ProducerInterceptor):
    """Adds its name to the value, and records its calls."""

    def __init__(self, name, calls, wants=lambda _: True):
        self.name, self.calls, self.eligible = name, calls, wants

    def before_send(self, producer, message):
        """Add the name."""
        return message.replace(value=message.value + self.name)

    def on_send_acknowledgement(self, producer, message, message_id, error):
        """Record it."""
        self.calls.append((self.name, message.value, message_id, error))

    def on_partitions_change(self, topic, partitions):
        """Record it."""
        self.calls.append((self.name, topic, partitions))

    def close(self):
        """Record it."""
        self.calls.append((self.name, "closed"))


class Raising(pulsar_ext.ProducerInterceptor, pulsar_ext.ConsumerInterceptor, pulsar_ext.ReaderInterceptor):
    """Raises in every method."""

    def __getattribute__(self, name):
        found = super().__getattribute__(name)
        if name.startswith(("before", "on_", "close", "eligible")):

            def fail(*_):
                raise RuntimeError(name)

            fail.__qualname__ = name
            return fail
        return found


class Odd(pulsar_ext.ProducerInterceptor, pulsar_ext.ConsumerInterceptor, pulsar_ext.ReaderInterceptor):
    """Returns objects that are not messages."""

    def before_send(self, producer, message):
        """Return None."""

    def before_consume(self, consumer, message):
        """Return None."""

    before_read = before_consume


class Shown:
    """Object that interceptors get."""


def message(value=b"m", **options):
    """Return an outgoing message."""
    return OutgoingMessage.of(value, options)


def received(inner=None):
    """Return a received message."""
    made = Received()
    made.inner = inner
    return made


def test_interceptors_change_messages_in_order():
    """Interceptors change a message one after the other, in their order."""
    calls = []
    chain = ProducerChain.of(PLAIN, [Producer(b"1", calls), Producer(b"2", calls)])
    assert chain.before_send(message()).value == b"m12"


def test_eligible_gets_original_and_sent_message():
    """The method `eligible` gets the application's message before the send, and the sent one afterwards, as in Java."""
    asked, calls = [], []
    chain = ProducerChain.of(
        PLAIN, [Producer(b"1", calls), Producer(b"2", calls, lambda one: bool(asked.append(one.value)))]
    )
    sent = chain.before_send(message())
    chain.sent(None, sent, "id", None)
    assert (sent.value, asked, calls) == (b"m1", [b"m", b"m1"], [(b"1", b"m1", "id", None)])


@pytest.mark.parametrize("odd", [Raising, Odd])
def test_failing_interceptor_changes_nothing(odd, caplog):
    """An interceptor that raises or returns another type does not change the message, and is logged."""
    chain = ProducerChain.of(PLAIN, [Producer(b"1", []), odd(), Producer(b"2", [])])
    assert chain.before_send(message()).value == b"m12"
    incoming = received()
    assert ConsumerChain.of(PLAIN, [odd()]).before(None, incoming) is incoming
    assert ReaderChain.of(PLAIN, [odd()]).before(None, incoming) is incoming
    assert len(caplog.records) == 3


def test_errors_of_notifications_are_logged(caplog):
    """Errors of an interceptor's notifications are logged, and all interceptors are called."""
    calls = []
    chain = ProducerChain.of(PLAIN, [Raising(), Producer(b"2", calls)])
    chain.sent(None, message(), "id", None)
    chain.notify("on_partitions_change", "t", 3)
    chain.close()
    consumers = ConsumerChain.of(PLAIN, [Raising()])
    consumers.acknowledged(None, "id", None)
    consumers.acknowledged(None, "id", None, "on_acknowledge_cumulative")
    assert calls == [(b"2", b"m", "id", None), (b"2", "t", 3), (b"2", "closed")]
    assert [one.levelname for one in caplog.records] == ["ERROR"] * 5


def test_interceptors_are_closed_once():
    """A second close has no effect."""
    calls = []
    chain = ProducerChain.of(PLAIN, [Producer(b"1", calls)])
    chain.close()
    chain.close()
    assert calls == [(b"1", "closed")]


@pytest.mark.parametrize(
    ("chain", "given"),
    [(ProducerChain, [object()]), (ConsumerChain, [Producer(b"", [])]), (ReaderChain, "text"), (ReaderChain, 1)],
)
def test_invalid_interceptors_raise(chain, given):
    """A wrong argument raises before anything is opened."""
    with pytest.raises(InvalidUse):
        chain.of(PLAIN, given)


@pytest.mark.parametrize("chain", [ProducerChain, ConsumerChain, ReaderChain])
def test_no_chain_without_interceptors(chain):
    """None and an empty list make no chain."""
    assert chain.of(PLAIN, None) is None
    assert chain.of(PLAIN, []) is None


def test_overrides_detects_overridden_methods():
    """A method counts as overridden if any interceptor overrides it."""
    assert ConsumerChain.of(PLAIN, [Odd()]).overrides("before_consume")
    assert not ConsumerChain.of(PLAIN, [Odd()]).overrides("on_ack_timeout_send")


def test_chain_does_not_keep_consumer_alive():
    """The chain has a weak reference to the consumer."""
    chain, shown = ConsumerChain.of(PLAIN, [Odd()]), Shown()
    chain.show(shown)
    assert chain.shown is shown
    del shown
    gc.collect()
    assert chain.shown is None


def test_added_partitions_are_reported_once():
    """Interceptors are called once with more partitions, not at the first poll, on errors, or with fewer."""
    calls, counts = [], {"t": 1, "u": 2}

    class Opener:
        def get_topic_partitions(self, topic):
            if counts[topic] is None:
                raise pulsar.Timeout
            return [topic] * counts[topic]

    chain, shown = ProducerChain.of(PLAIN, [Producer(b"1", calls)]), Shown()
    chain.show(shown)
    watch = PartitionWatch(types.SimpleNamespace(opener=Opener()), chain, ["t", "u"])
    for counts["t"], counts["u"] in ((1, 2), (1, None), (4, 2), (4, 5), (4, 1), (4, 3)):
        assert watch.tick(0.0)
    assert calls == [(b"1", "t", 4), (b"1", "u", 5), (b"1", "u", 3)]
    watch.close()
    assert watch.tick(0.0) is None


@pytest.mark.parametrize(
    ("interceptor", "polls"), [(Producer(b"", []), True), (pulsar_ext.ProducerInterceptor(), False)]
)
def test_partitions_are_polled_only_if_handled(interceptor, polls):
    """Partitions are polled only if an interceptor overrides `on_partitions_change`."""
    watched, chain = [], ProducerChain.of(PLAIN, [interceptor])
    inquiries = types.SimpleNamespace(watch=watched.append)
    register_chain(types.SimpleNamespace(chains=set(), inquiries=inquiries), chain, "t")
    assert bool(watched) is polls


def test_interceptors_of_client_come_first():
    """A client's interceptors are made for each producer, and called before the application's."""
    calls = []
    made = types.SimpleNamespace(interceptors=[(pulsar_ext.ProducerInterceptor, lambda: Producer(b"0", calls))])
    first, second = (ProducerChain.of(made, [Producer(b"1", calls)]) for _ in range(2))
    assert first.before_send(message()).value == b"m01"
    assert first.interceptors[0] is not second.interceptors[0]
    assert ProducerChain.of(made, None).before_send(message()).value == b"m0"
    assert ConsumerChain.of(made, None) is None
    assert ProducerChain.of(made, first) is first


class WrappedSender:
    """A sender whose outcomes depend on the messages' values."""

    many_in_flight = None
    context = types.SimpleNamespace(callbacks=types.SimpleNamespace(raise_inside=lambda _: None))

    def __init__(self):
        self.sent = []

    def topic(self):
        """Return a name."""
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
        """Check for empty arguments."""
        assert (list(contents), columns) == ([], {})

    def flush(self):
        """Flush."""

    def finish(self, deadline):
        """Close."""


class Recorder(pulsar_ext.ProducerInterceptor):
    """Adds a `+` to each value and a property, and records outcomes."""

    def __init__(self):
        self.calls = []

    def before_send(self, producer, message):
        """Change it."""
        return message.replace(value=message.value + b"+").with_properties({"seen": "yes"})

    def on_send_acknowledgement(self, producer, message, message_id, error):
        """Record it."""
        self.calls.append((message.value, message_id is not None, type(error)))

    def close(self):
        """Record it."""
        self.calls.append("closed")


@pytest.fixture
def wrapped():
    """The wrapped sender."""
    return WrappedSender()


@pytest.fixture
def recorder():
    """The interceptor."""
    return Recorder()


@pytest.fixture
def sender(wrapped, recorder):
    """The sender with interceptors."""
    return InterceptedSender(wrapped, ProducerChain([recorder]))


def test_send_sends_the_changed_message(sender, wrapped, recorder):
    """The interceptor's value and properties are sent, and it and the application get the id."""
    assert sender.send(b"v", {"a": "b"}, partition_key="k") == b"v+"
    assert wrapped.sent == [(b"v+", {"properties": {"a": "b", "seen": "yes"}, "partition_key": "k"})]
    assert recorder.calls == [(b"v+", True, type(None))]


def test_failed_send_is_reported_and_raises(sender, recorder):
    """The interceptor gets the error before the application."""
    with pytest.raises(pulsar.Timeout):
        sender.send(b"raise")
    assert recorder.calls == [(b"raise+", False, pulsar.Timeout)]


@pytest.mark.parametrize(
    ("value", "result", "error"),
    [
        (b"v", pulsar.Result.Ok, type(None)),
        (b"fail", pulsar.Result.Timeout, pulsar.Timeout),
        (b"twice", pulsar_ext.DUPLICATE_MESSAGE, pulsar_ext.DuplicateMessage),
    ],
)
def test_outcome_is_reported_before_the_callback(sender, recorder, value, result, error):
    """The interceptor gets the error that `send()` raises, before the callback gets the result."""
    order = []
    sender.send_async(value, lambda *given: order.append((given[0], list(recorder.calls))))
    assert order == [(result, [(value + b"+", error is type(None), error)])]


def test_outcome_is_reported_without_callback(sender, recorder):
    """Without a callback the interceptor still gets the outcome."""
    sender.send_async(b"v", None)
    assert recorder.calls == [(b"v+", True, type(None))]


def test_message_that_is_not_sent_is_reported(sender, recorder):
    """The interceptor gets the raised error if nothing was sent."""
    with pytest.raises(pulsar.Timeout):
        sender.send_async(b"raise", None)
    assert recorder.calls == [(b"raise+", False, pulsar.Timeout)]


def test_invalid_callback_raises_before_interceptors(sender, recorder, wrapped):
    """An invalid callback raises before the interceptor is called."""
    with pytest.raises(TypeError):
        sender.send_async(b"v", 5)
    assert recorder.calls == wrapped.sent == []


def test_send_many_intercepts_each_message(sender, wrapped, recorder):
    """Each message has its own outcome, duplicates are counted, and the last id is returned."""
    columns = {"partition_key": ["a", "b", "c"]}
    done = sender.send_many([b"v", b"twice", b"w"], columns, flush=True)
    assert done == SentMany(3, 1, pulsar_ext.MessageId(-1, 1, 3, -1))
    assert [one[1]["partition_key"] for one in wrapped.sent] == ["a", "b", "c"]
    assert [one[0] for one in recorder.calls] == [b"v+", b"twice+", b"w+"]
    with pytest.raises(pulsar.Timeout):
        sender.send_many([b"v", b"fail"], {}, flush=True)


def test_finish_closes_interceptors(sender, recorder):
    """Other methods are those of the wrapped sender, and finishing closes the interceptors."""
    assert sender.topic() == "t"
    sender.finish(0.0)
    assert recorder.calls == ["closed"]
