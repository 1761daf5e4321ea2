"""What the looks at a connection ask for."""

from __future__ import annotations

import math

from pulsar_ext.ack.delivery import ConnectionWatch

TICK = 0.04


def _look_until(watch, until, now, *, connected=True):
    """Look every 40 ms; give when half received messages were asked for, and asked for again."""
    asked, again = [], []
    while now < until:
        news = watch.look(now, connected=connected)
        asked += [now] * news.asks_for_chunks
        again += [now] * news.asks_again
        now += TICK
    return asked, again


def test_half_received_messages_are_asked_for_behind_a_reconnection():
    """Once soon after it in any case, and three times more within half a minute."""
    watch = ConnectionWatch()
    _look_until(watch, 1.0, 0.0)
    _look_until(watch, 2.0, 1.0, connected=False)
    asked, again = _look_until(watch, 40.0, 2.0)
    assert len(asked) == 1
    assert len(again) == 3
    assert all(asked[0] < one < 33 for one in again)


def test_another_consumer_has_half_of_nothing():
    """Where another C++ consumer took the place of the one that was disconnected, nothing is asked for."""
    watch = ConnectionWatch()
    _look_until(watch, 1.0, 0.0)
    _look_until(watch, 1.2, 1.0, connected=False)
    watch.renew()
    assert _look_until(watch, 40.0, 1.2) == ([], [])


def test_another_consumer_that_is_disconnected_at_once_has_half_of_something():
    """What is lost before anybody has looked at another C++ consumer is a reconnection all the same."""
    watch = ConnectionWatch()
    _look_until(watch, 1.0, 0.0)
    _look_until(watch, 1.2, 1.0, connected=False)
    watch.renew()
    _look_until(watch, 1.3, 1.2, connected=False)
    asked, again = _look_until(watch, 40.0, 1.3)
    assert len(asked) == 1
    assert len(again) == 3


def test_a_disconnection_before_another_consumer_counts():
    """A disconnection before another C++ consumer took the place has what left sent again, once it is connected."""
    watch = ConnectionWatch()
    _look_until(watch, 1.0, 0.0)
    _look_until(watch, 1.2, 1.0, connected=False)
    watch.renew()
    assert not watch.is_settled
    assert watch.look(1.2, connected=True).is_other


def test_a_connection_that_was_never_lost_asks_for_nothing():
    """Looks at a connection that stays ask for nothing."""
    assert _look_until(ConnectionWatch(), 40.0, 0.0) == ([], [])


def test_a_glance_keeps_a_connection_from_being_doubted():
    """What took seconds has nothing sent again if the connection was there at each glance, and has if it was not."""
    for connected in (True, False):
        watch = ConnectionWatch()
        _look_until(watch, 1.0, 0.0)
        for at in range(20, 60):
            watch.glance(at * 0.05, connected=connected or at != 40)
        news = watch.look(3.0, connected=True)
        assert (news.is_doubtful, news.is_other, watch.is_settled) == (not connected, not connected, connected)


def test_a_glance_that_comes_late_hides_nothing():
    """A gap between two glances is seen by the next look: a disconnection may have been in it."""
    watch = ConnectionWatch()
    _look_until(watch, 1.0, 0.0)
    for at in (1.5, 1.55):
        watch.glance(at, connected=True)
    assert watch.look(1.6, connected=True).is_doubtful


def test_a_short_look_tells_what_a_look_has_to_follow():
    """A connection that is as it was asks for nothing; one that was lost, came back or was out of sight does."""
    watch = ConnectionWatch()
    _look_until(watch, 1.0, 0.0)
    assert watch.stays(1.03, connected=True)
    assert not watch.stays(1.2, connected=True), "it may have been lost in between"
    watch.look(1.2, connected=True)
    assert not watch.stays(1.24, connected=False)
    assert not watch.look(1.24, connected=False).sends_again
    assert watch.stays(1.28, connected=False)
    assert not watch.stays(1.32, connected=True)
    assert watch.look(1.32, connected=True).is_other


def test_a_connection_that_was_lost_and_is_back_by_the_next_look_is_another():
    """What a short look has seen is not forgotten until a look follows."""
    watch = ConnectionWatch()
    _look_until(watch, 1.0, 0.0)
    assert not watch.stays(1.03, connected=False)
    assert watch.look(1.04, connected=True).is_other


def test_it_is_known_when_a_look_is_due():
    """Looks at those times alone find what looks every 40 ms find."""
    for outage in (None, 1.0):
        news, due = [], []
        for sparse in (False, True):
            watch, now, found = ConnectionWatch(), 0.0, []
            while now < 60.0:
                connected = outage is None or not outage <= now < outage + 0.5
                if sparse and watch.looked is not None and now < watch.due and watch.stays(now, connected=connected):
                    now += TICK
                    continue
                one = watch.look(now, connected=connected)
                found += [(round(now, 3), *one[1:])] * any((one.sends_again, one.asks_for_chunks, one.asks_again))
                due.append(watch.due)
                now += TICK
            news.append(found)
        assert news[0] == news[1]
        assert news[0]
        assert due[-1] == math.inf


def test_a_gap_between_looks_has_what_left_shortly_before_it_sent_again():
    """What may have been lost unseen is of the second before the last look; a connection seen lost may lose it all."""
    for lost in (False, True):
        watch = ConnectionWatch()
        _look_until(watch, 10.0, 0.0)
        times = (10.0, 10.5, *(10.54 + tick * TICK for tick in range(40)))
        since = [watch.since for at in times if watch.look(at, connected=not (lost and at == 10.0)).sends_again]
        assert since == ([-math.inf] * 2 if lost else [9.0])
