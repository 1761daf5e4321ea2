"""Interceptors called one after the other: what they may change, and that none harms anybody."""

from __future__ import annotations

import gc
import types

import pulsar
import pytest

import pulsar_ext
from pulsar_ext.errors import InvalidUse
from pulsar_ext.intercept.chain import ConsumerChain, PartitionWatch, ProducerChain, ReaderChain, look_after
from pulsar_ext.intercept.interfaces import OutgoingMessage
from pulsar_ext.message import Received

PLAIN = types.SimpleNamespace(interceptors=[])


class Producer(pulsar_ext.ProducerInterceptor):
    """Adds its name to the value, and notes what it hears."""

    def __init__(self, name, heard, wants=lambda _: True):
        self.name, self.heard, self.eligible = name, heard, wants

    def before_send(self, producer, message):
        """Add the name."""
        return message.replace(value=message.value + self.name)

    def on_send_acknowledgement(self, producer, message, message_id, error):
        """Note it."""
        self.heard.append((self.name, message.value, message_id, error))

    def on_partitions_change(self, topic, partitions):
        """Note it."""
        self.heard.append((self.name, topic, partitions))

    def close(self):
        """Note it."""
        self.heard.append((self.name, "closed"))


class Raising(pulsar_ext.ProducerInterceptor, pulsar_ext.ConsumerInterceptor, pulsar_ext.ReaderInterceptor):
    """Raises whatever it is asked."""

    def __getattribute__(self, name):
        found = super().__getattribute__(name)
        if name.startswith(("before", "on_", "close", "eligible")):

            def fail(*_):
                raise RuntimeError(name)

            fail.__qualname__ = name
            return fail
        return found


class Odd(pulsar_ext.ProducerInterceptor, pulsar_ext.ConsumerInterceptor, pulsar_ext.ReaderInterceptor):
    """Gives what is no message."""

    def before_send(self, producer, message):
        """Give nothing."""

    def before_consume(self, consumer, message):
        """Give nothing."""

    before_read = before_consume


class Shown:
    """What interceptors see."""


def message(value=b"m", **options):
    """Make a message that is about to be sent."""
    return OutgoingMessage.of(value, options)


def received(inner=None):
    """Make a message that came."""
    made = Received()
    made.inner = inner
    return made


def test_each_gets_what_the_one_before_gave():
    """The message that is sent went through all of them, in their order."""
    heard = []
    chain = ProducerChain.of(PLAIN, [Producer(b"1", heard), Producer(b"2", heard)])
    assert chain.before_send(message()).value == b"m12"


def test_eligible_is_asked_about_the_first_message_before_and_about_the_last_behind():
    """As in Java: before the send about the message of the application, and afterwards about what was sent."""
    asked, heard = [], []
    chain = ProducerChain.of(
        PLAIN, [Producer(b"1", heard), Producer(b"2", heard, lambda one: bool(asked.append(one.value)))]
    )
    sent = chain.before_send(message())
    chain.sent(None, sent, "id", None)
    assert (sent.value, asked, heard) == (b"m1", [b"m", b"m1"], [(b"1", b"m1", "id", None)])


@pytest.mark.parametrize("odd", [Raising, Odd])
def test_one_that_fails_changes_nothing_and_the_next_is_called(odd, caplog):
    """A message goes on as it was before an interceptor that raises or gives no message, which the log names."""
    chain = ProducerChain.of(PLAIN, [Producer(b"1", []), odd(), Producer(b"2", [])])
    assert chain.before_send(message()).value == b"m12"
    came = received()
    assert ConsumerChain.of(PLAIN, [odd()]).before(None, came) is came
    assert ReaderChain.of(PLAIN, [odd()]).before(None, came) is came
    assert len(caplog.records) == 3


def test_what_is_raised_by_one_that_only_hears_is_logged(caplog):
    """Nothing that an interceptor raises when it hears of something reaches the client, and all are called."""
    heard = []
    chain = ProducerChain.of(PLAIN, [Raising(), Producer(b"2", heard)])
    chain.sent(None, message(), "id", None)
    chain.partitions_changed("t", 3)
    chain.close()
    consumers = ConsumerChain.of(PLAIN, [Raising()])
    consumers.acknowledged(None, "id", None)
    consumers.acknowledged_cumulatively(None, "id", None)
    assert heard == [(b"2", b"m", "id", None), (b"2", "t", 3), (b"2", "closed")]
    assert [one.levelname for one in caplog.records] == ["ERROR"] * 5


def test_they_are_closed_once():
    """A close behind a close does nothing."""
    heard = []
    chain = ProducerChain.of(PLAIN, [Producer(b"1", heard)])
    chain.close()
    chain.close()
    assert heard == [(b"1", "closed")]


@pytest.mark.parametrize(
    ("chain", "given"),
    [(ProducerChain, [object()]), (ConsumerChain, [Producer(b"", [])]), (ReaderChain, "text"), (ReaderChain, 1)],
)
def test_what_is_no_list_of_interceptors_of_this_kind_is_refused(chain, given):
    """A wrong argument raises before anything is opened."""
    with pytest.raises(InvalidUse):
        chain.of(PLAIN, given)


@pytest.mark.parametrize("chain", [ProducerChain, ConsumerChain, ReaderChain])
def test_without_interceptors_there_is_no_chain(chain):
    """None and an empty list are as if the argument was not there."""
    assert chain.of(PLAIN, None) is None
    assert chain.of(PLAIN, []) is None


def test_it_is_known_whether_anybody_listens():
    """A method counts as overridden by any one of the interceptors."""
    assert ConsumerChain.of(PLAIN, [Odd()]).hears("before_consume")
    assert not ConsumerChain.of(PLAIN, [Odd()]).hears("on_ack_timeout_send")


def test_what_they_see_is_not_kept_alive():
    """The chain does not keep the consumer, whose end closes it."""
    chain, shown = ConsumerChain.of(PLAIN, [Odd()]), Shown()
    chain.show(shown)
    assert chain.shown is shown
    del shown
    gc.collect()
    assert chain.shown is None


def test_added_partitions_are_told_once():
    """Interceptors hear how many there are now: not at the first look, not again, and of none away or with fewer."""
    heard, counts = [], {"t": 1, "u": 2}

    class Opener:
        def get_topic_partitions(self, topic):
            if counts[topic] is None:
                raise pulsar.Timeout
            return [topic] * counts[topic]

    chain, shown = ProducerChain.of(PLAIN, [Producer(b"1", heard)]), Shown()
    chain.show(shown)
    watch = PartitionWatch(types.SimpleNamespace(opener=Opener()), chain, ["t", "u"])
    for counts["t"], counts["u"] in ((1, 2), (1, None), (4, 2), (4, 5), (4, 1), (4, 3)):
        assert watch.tick(0.0)
    assert heard == [(b"1", "t", 4), (b"1", "u", 5), (b"1", "u", 3)]
    watch.close()
    assert watch.tick(0.0) is None


@pytest.mark.parametrize(
    ("interceptor", "looks"), [(Producer(b"", []), True), (pulsar_ext.ProducerInterceptor(), False)]
)
def test_partitions_are_looked_for_only_if_somebody_wants_to_know(interceptor, looks):
    """Who does not override `on_partitions_change` costs the broker nothing."""
    watched, chain = [], ProducerChain.of(PLAIN, [interceptor])
    inquiries = types.SimpleNamespace(watch=watched.append)
    look_after(types.SimpleNamespace(chains=set(), inquiries=inquiries), chain, "t")
    assert bool(watched) is looks


def test_those_of_the_client_come_first():
    """What a client has for all of its producers is made anew for each, and called before the application's own."""
    heard = []
    made = types.SimpleNamespace(interceptors=[(pulsar_ext.ProducerInterceptor, lambda: Producer(b"0", heard))])
    first, second = (ProducerChain.of(made, [Producer(b"1", heard)]) for _ in range(2))
    assert first.before_send(message()).value == b"m01"
    assert first.interceptors[0] is not second.interceptors[0]
    assert ProducerChain.of(made, None).before_send(message()).value == b"m0"
    assert ConsumerChain.of(made, None) is None
    assert ProducerChain.of(made, first) is first
