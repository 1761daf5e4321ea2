"""When the send timeout of a producer runs on at reconnections."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pulsar_ext.produce.options import SendTiming


@pytest.fixture
def told():
    """What the C++ producer was told, in order."""
    return []


@pytest.fixture
def timing(told):
    """The timing of a producer with a send timeout of 8 seconds."""
    return SendTiming(SimpleNamespace(lazy_start_partitioned_producers=told.append), 8000)


def test_a_steady_connection_changes_nothing(timing, told):
    """As long as there is a connection the producer is told nothing."""
    for now in range(100):
        timing.look(float(now), connected=True)
    timing.rest()
    assert told == []


def test_the_timeout_runs_on_from_the_first_end_of_a_connection(timing, told):
    """The producer is told once, however often its connection ends, and until it has lasted twice the send timeout."""
    for now in (1.0, 2.0, 3.0):
        timing.look(now, connected=False)
        timing.look(now + 0.5, connected=True)
    assert told == [True]
    timing.look(18.9, connected=True)
    assert told == [True]
    timing.look(19.1, connected=True)
    assert told == [True, False]


def test_it_does_not_run_on_while_nothing_is_sent(timing, told):
    """Where nobody looks any more the producer is told that it need not, and once more at the next end."""
    timing.look(1.0, connected=False)
    timing.rest()
    timing.rest()
    timing.look(2.0, connected=False)
    assert told == [True, False, True]


@pytest.mark.parametrize(("millis", "seconds"), [(1, 0.05), (2000, 0.25), (30_000, 2.0)])
def test_it_is_looked_at_some_times_within_the_timeout(millis, seconds):
    """Several looks fall into one send timeout, and no look is more than two seconds behind another."""
    assert SendTiming(SimpleNamespace(), millis).seconds == seconds
