"""Actions that polls of a connection request."""

from __future__ import annotations

import math

from pulsar_ext.ack.delivery import ConnectionWatch

TICK = 0.04


def _poll_until(watch, until, now, *, connected=True):
    """Poll every 40 ms; return the times at which incomplete messages were requested, first and again."""
    asked, again = [], []
    while now < until:
        report = watch.poll(now, connected=connected)
        asked += [now] * report.must_request_chunks
        again += [now] * report.must_request_chunks_again
        now += TICK
    return asked, again


def test_reconnection_requests_incomplete_messages():
    """Incomplete messages are requested soon after the reconnection, and three more times within half a minute."""
    watch = ConnectionWatch()
    _poll_until(watch, 1.0, 0.0)
    _poll_until(watch, 2.0, 1.0, connected=False)
    asked, again = _poll_until(watch, 40.0, 2.0)
    assert len(asked) == 1
    assert len(again) == 3
    assert all(asked[0] < one < 33 for one in again)


def test_replacement_requests_no_chunks():
    """After another native consumer has replaced the disconnected one, nothing is requested."""
    watch = ConnectionWatch()
    _poll_until(watch, 1.0, 0.0)
    _poll_until(watch, 1.2, 1.0, connected=False)
    watch.native_replaced()
    assert _poll_until(watch, 40.0, 1.2) == ([], [])


def test_disconnected_replacement_requests_chunks():
    """A connection lost before the first poll of a new native consumer counts as a reconnection."""
    watch = ConnectionWatch()
    _poll_until(watch, 1.0, 0.0)
    _poll_until(watch, 1.2, 1.0, connected=False)
    watch.native_replaced()
    _poll_until(watch, 1.3, 1.2, connected=False)
    asked, again = _poll_until(watch, 40.0, 1.3)
    assert len(asked) == 1
    assert len(again) == 3


def test_disconnection_before_replacement_counts():
    """A disconnection before a replacement has acknowledgements resent when the replacement is connected."""
    watch = ConnectionWatch()
    _poll_until(watch, 1.0, 0.0)
    _poll_until(watch, 1.2, 1.0, connected=False)
    watch.native_replaced()
    assert not watch.is_stable
    assert watch.poll(1.2, connected=True).is_reconnected


def test_stable_connection_requests_no_chunks():
    """Polls of a stable connection request nothing."""
    assert _poll_until(ConnectionWatch(), 40.0, 0.0) == ([], [])


def test_check_connection_avoids_doubt():
    """A long operation causes resending only if one of its polls found no connection."""
    for connected in (True, False):
        watch = ConnectionWatch()
        _poll_until(watch, 1.0, 0.0)
        for at in range(20, 60):
            watch.check_connection(at * 0.05, connected=connected or at != 40)
        report = watch.poll(3.0, connected=True)
        assert (report.is_doubtful, report.is_reconnected, watch.is_stable) == (not connected, not connected, connected)


def test_late_check_connection_hides_nothing():
    """The next poll detects a gap between two checks, in which a disconnection may have been."""
    watch = ConnectionWatch()
    _poll_until(watch, 1.0, 0.0)
    for at in (1.5, 1.55):
        watch.check_connection(at, connected=True)
    assert watch.poll(1.6, connected=True).is_doubtful


def test_is_unchanged_reports_when_poll_is_needed():
    """An unchanged connection needs no poll; one that was lost, reopened or not polled for long does."""
    watch = ConnectionWatch()
    _poll_until(watch, 1.0, 0.0)
    assert watch.is_unchanged(1.03, connected=True)
    assert not watch.is_unchanged(1.2, connected=True), "it may have been lost in between"
    watch.poll(1.2, connected=True)
    assert not watch.is_unchanged(1.24, connected=False)
    assert not watch.poll(1.24, connected=False).must_resend
    assert watch.is_unchanged(1.28, connected=False)
    assert not watch.is_unchanged(1.32, connected=True)
    assert watch.poll(1.32, connected=True).is_reconnected


def test_loss_seen_by_is_unchanged_is_remembered():
    """A loss that `is_unchanged()` has seen is remembered until the next poll."""
    watch = ConnectionWatch()
    _poll_until(watch, 1.0, 0.0)
    assert not watch.is_unchanged(1.03, connected=False)
    assert watch.poll(1.04, connected=True).is_reconnected


def test_polls_at_due_times_find_everything():
    """Polls at the due times find what polls every 40 ms find."""
    for outage in (None, 1.0):
        reports, due = [], []
        for sparse in (False, True):
            watch, now, found = ConnectionWatch(), 0.0, []
            while now < 60.0:
                connected = outage is None or not outage <= now < outage + 0.5
                if (
                    sparse
                    and watch.polled_at is not None
                    and now < watch.due
                    and watch.is_unchanged(now, connected=connected)
                ):
                    now += TICK
                    continue
                one = watch.poll(now, connected=connected)
                found += [(round(now, 3), *one[1:])] * any(
                    (one.must_resend, one.must_request_chunks, one.must_request_chunks_again)
                )
                due.append(watch.due)
                now += TICK
            reports.append(found)
        assert reports[0] == reports[1]
        assert reports[0]
        assert due[-1] == math.inf


def test_gap_between_polls_resends_the_last_second():
    """An unnoticed loss affects the second before the last poll; a noticed one may affect everything."""
    for lost in (False, True):
        watch = ConnectionWatch()
        _poll_until(watch, 10.0, 0.0)
        times = (10.0, 10.5, *(10.54 + tick * TICK for tick in range(40)))
        since = [watch.since for at in times if watch.poll(at, connected=not (lost and at == 10.0)).must_resend]
        assert since == ([-math.inf] * 2 if lost else [9.0])
