"""Scopes that acknowledge or redeliver all of their messages: their calls, blocking and asyncio, without a broker."""

import asyncio

import pytest

from pulsar_ext.ack.confirm import AckScope
from pulsar_ext.asyncio import AckScope as AwaitedScope
from pulsar_ext.receive.source import Records


class Consumer:
    """A fake consumer that records the calls of a scope; received messages are put into `records`."""

    def __init__(self):
        self.calls, self.records = [], Records()
        self._record_, self.refused = self.records.begin, None

    def _end_record_(self, noted):
        return self.records.end(noted)

    def __getattr__(self, name):
        def call(*args, **kwargs):
            self.calls.append((name, *args, *kwargs.values()))
            if name == self.refused:
                raise KeyError(name)

        return call


class AwaitedConsumer(Consumer):
    """A fake consumer with awaitable methods."""

    def __getattr__(self, name):
        call = super().__getattr__(name)

        async def awaited(*args, **kwargs):
            call(*args, **kwargs)

        return awaited


def _blocking(consumer, messages, body):
    with AckScope(consumer, messages, confirm=True, timeout_ms=5) as entered:
        body(entered)


def _awaited(consumer, messages, body):
    async def steps():
        async with AwaitedScope(consumer, messages, confirm=True, timeout_ms=5) as entered:
            body(entered)

    asyncio.run(steps())


both = pytest.mark.parametrize(("kind", "run"), [(Consumer, _blocking), (AwaitedConsumer, _awaited)])


@both
@pytest.mark.parametrize("given", [True, False])
def test_scope_acknowledges_and_flushes_at_its_end(kind, run, given):
    """A scope acknowledges its messages, passed or received inside it, at once, and then flushes."""
    consumer, entered = kind(), []

    def body(what):
        entered.append(what)
        consumer.records.note([1, 2])

    run(consumer, iter([1, 2]) if given else None, body)
    consumer.records.note([3])
    assert consumer.calls == [("acknowledge_many", [1, 2]), ("flush_acks", True, 5)]
    assert (entered == [[1, 2]]) is given


@both
def test_scope_that_raises_redelivers_each_message(kind, run):
    """Each message is negatively acknowledged, none is acknowledged, and the exception propagates."""
    consumer = kind()
    with pytest.raises(ZeroDivisionError):
        run(consumer, [1, 2], lambda _: 1 / 0)
    assert consumer.calls == [("negative_acknowledge", 1), ("negative_acknowledge", 2)]


@both
def test_scope_raises_failed_ack_without_flush(kind, run):
    """The calls stop at the first one that raises."""
    consumer = kind()
    consumer.refused = "acknowledge_many"
    with pytest.raises(KeyError):
        run(consumer, [1], lambda _: None)
    assert consumer.calls == [("acknowledge_many", [1])]


def test_nested_scopes_record_the_same_messages():
    """A message received in two open scopes belongs to both, once if it was screened a second time."""
    records = Records()
    outer = records.begin()
    records.note([1])
    inner = records.begin()
    records.note([2])
    assert records.end(inner) == [2]
    records.note([3, 2])
    assert records.end(outer) == [1, 2, 3]
