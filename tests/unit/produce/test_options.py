"""Send timeout of a producer across reconnections."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pulsar_ext.produce.options import SendTiming


@pytest.fixture
def calls():
    """Values of `lazy_start_partitioned_producers` set on the C++ configuration, in order."""
    return []


@pytest.fixture
def timing(calls):
    """The timing of a producer with a send timeout of 8 seconds."""
    return SendTiming(SimpleNamespace(lazy_start_partitioned_producers=calls.append), 8000)


def test_steady_connection_keeps_official_timeout(timing, calls):
    """The configuration is not changed while the producer is connected."""
    for now in range(100):
        timing.poll(float(now), connected=True)
    timing.reset()
    assert calls == []


def test_timeout_continues_after_first_disconnect(timing, calls):
    """The configuration is changed once, until the connection has lasted twice the send timeout."""
    for now in (1.0, 2.0, 3.0):
        timing.poll(now, connected=False)
        timing.poll(now + 0.5, connected=True)
    assert calls == [True]
    timing.poll(18.9, connected=True)
    assert calls == [True]
    timing.poll(19.1, connected=True)
    assert calls == [True, False]


def test_reset_restores_official_timeout(timing, calls):
    """`reset()` restores the configuration, and the next disconnect changes it again."""
    timing.poll(1.0, connected=False)
    timing.reset()
    timing.reset()
    timing.poll(2.0, connected=False)
    assert calls == [True, False, True]


@pytest.mark.parametrize(("millis", "seconds"), [(1, 0.05), (2000, 0.25), (30_000, 2.0)])
def test_polling_interval_is_a_fraction_of_the_timeout(millis, seconds):
    """The producer is polled several times within a send timeout, and at least every two seconds."""
    assert SendTiming(SimpleNamespace(), millis).seconds == seconds
