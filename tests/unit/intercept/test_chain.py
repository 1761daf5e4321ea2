"""Interceptors called one after the other: what they may change, that none harms anybody, and their sender."""

from __future__ import annotations

import gc
import types

import pulsar
import pytest

import pulsar_ext
from pulsar_ext.errors import InvalidUse
from pulsar_ext.intercept.chain import (
    ConsumerChain,
    InterceptedSender,
    PartitionWatch,
    ProducerChain,
    ReaderChain,
    look_after,
)
from pulsar_ext.intercept.interfaces import OutgoingMessage
from pulsar_ext.message import Received
from pulsar_ext.produce.outcome import SentMany

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
