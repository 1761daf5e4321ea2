"""Limits and outcomes of accepted messages, and the check for keys in mixed batches."""

from __future__ import annotations

import threading
import warnings
from types import SimpleNamespace

import pulsar
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_ext.errors import AdminUnavailable
from pulsar_ext.ids.message_id import MessageId
from pulsar_ext.produce.batching import MixedKeyBatchWarning, mixed_key_check
from pulsar_ext.produce.options import key_of
from pulsar_ext.produce.outcome import DUPLICATE_MESSAGE, BulkOutcome, PendingMessages


def test_release_frees_room_and_complete_ends_waits():
    """Released messages free room; completed messages end waits."""
    pending = PendingMessages(2)
    pending.accepted = 2
    assert not pending.has_room()
    pending.release(1)
    assert pending.has_room()
    assert not pending.has_room(2)
    assert not pending.wait_for(lambda: pending.completed >= 2, 0.001)
    assert not pending.complete(1)
    assert pending.complete(1)


@given(st.integers(1, 20), st.lists(st.integers(1, 30), max_size=30), st.data())
def test_chunk_permits_stay_within_limit_except_one_giant(limit, chunks, data):
    """The permits in use stay within the limit, unless a single message exceeds it alone."""
    pending, used = PendingMessages(limit), []
    for permits in chunks:
        if pending.has_room(permits):
            pending.accepted += 1
            pending.extra_permits += permits - 1
            used.append(permits)
        assert sum(used) <= limit or len(used) == 1
        if used and data.draw(st.booleans()):
            pending.release(1, used.pop() - 1)
    for permits in used:
        pending.release(1, permits - 1)
    assert pending.has_room(limit)


@pytest.mark.parametrize("flag", ["paused", "barred"])
def test_paused_or_barred_has_no_room(flag):
    """A paused or barred limit has no room, whatever the limit."""
    pending = PendingMessages(0)
    assert pending.has_room(1_000_000)
    setattr(pending, flag, True)
    assert not pending.has_room()


def test_first_failure_is_reported_by_one_flush():
    """A flush reports the first failure, and the next flush does not; duplicates are not failures."""
    pending = PendingMessages(0)
    pending.accepted = 3
    for result in (pulsar.Result.Ok, DUPLICATE_MESSAGE, pulsar.Result.Timeout, pulsar.Result.AlreadyClosed):
        pending.fail(result, 3)
    assert pending.failure_since(pending.begin_flush(), 3) == pulsar.Result.Timeout
    assert pending.failure_since(pending.begin_flush(), 3) is None


def test_concurrent_flushes_report_a_failure():
    """Two concurrent flushes report a failure; a flush that began later does not."""
    pending = PendingMessages(0)
    pending.accepted = 2
    one, another = pending.begin_flush(), pending.begin_flush()
    pending.fail(pulsar.Result.Timeout, 2)
    assert pending.failure_since(one, 2) == pulsar.Result.Timeout
    third = pending.begin_flush()
    assert pending.failure_since(another, 2) == pulsar.Result.Timeout
    assert pending.failure_since(third, 2) is None


@pytest.mark.parametrize("accepted", [3, None], ids=["accepted", "refused"])
def test_next_flush_reports_failures_sent_after_a_flush(accepted):
    """A failure of a message sent after a flush began is reported by that flush and by the next."""
    pending = PendingMessages(0)
    begun, pending.accepted = pending.begin_flush(), 3
    pending.fail(pulsar.Result.Timeout, accepted)
    assert pending.failure_since(begun, 2) == pulsar.Result.Timeout
    assert pending.failure_since(pending.begin_flush(), 3) == pulsar.Result.Timeout
    assert pending.failure_since(pending.begin_flush(), 3) is None


class Named:
    """A producer with a topic name for the warning."""

    def topic(self):
        return "t"


class Context:
    """A client context whose admin API reports one subscription when `answer()` is called."""

    def __init__(self, kind):
        self.inquiries, self._kind, self._jobs = self, kind, []

    def run(self, job):
        self._jobs.append(job)

    def answer(self):
        for job in self._jobs:
            job()

    def admin_api(self):
        return self

    def stats(self, _topic):
        if self._kind is None:
            raise AdminUnavailable("no answer")
        return SimpleNamespace(subscriptions={"s": SimpleNamespace(type=self._kind)})


MIXED = {"batching_enabled": True, "batching_type": pulsar.BatchingType.Default}


def test_key_on_key_shared_topic_warns_once():
    """The warning names the line that sends, and is raised once, even as an error."""
    context = Context("Key_Shared")
    check = mixed_key_check(MIXED, context)
    assert check.check({"properties": {}}, Named()) is check
    assert check.check({"partition_key": ""}, Named()) is check
    assert check.check({"partition_key": ""}, Named()) is check
    context.answer()
    with pytest.warns(MixedKeyBatchWarning, match="producer on .*t mixes") as warned:
        assert check.check({"partition_key": ""}, Named()) is None
    assert warned[0].filename == __file__
    check = mixed_key_check(MIXED, context)
    check.check({"ordering_key": "a"}, Named())
    context.answer()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(MixedKeyBatchWarning):
            check.check({"ordering_key": "a"}, Named())
        assert check.check({"ordering_key": "a"}, Named()) is None


@pytest.mark.parametrize("kind", ["Shared", None])
def test_no_warning_without_key_shared_subscription(kind):
    """Another subscription type or an unavailable admin API causes no warning and ends the check."""
    context = Context(kind)
    check = mixed_key_check(MIXED, context)
    check.check({"partition_key": "a"}, Named())
    context.answer()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert check.check({"partition_key": "a"}, Named()) is None


@pytest.mark.parametrize(
    "named",
    [
        {"batching_enabled": False, "batching_type": pulsar.BatchingType.Default},
        {"batching_enabled": True, "batching_type": pulsar.BatchingType.KeyBased},
    ],
)
def test_unmixed_batches_are_not_checked(named):
    """Unbatched and key-based producers are not checked."""
    assert mixed_key_check(named, Context("Key_Shared")) is None


def test_bulk_outcome_keeps_last_id_and_first_failure():
    """Duplicates and failures are counted; ids may arrive in any order, or be missing."""
    outcome = BulkOutcome()
    outcome.raise_failure()
    early, late = MessageId(-1, 1, 5), MessageId(-1, 2, 0)
    for result, count, last in [
        (pulsar.Result.Ok, 3, early),
        (pulsar.Result.Ok, 2, late),
        (pulsar.Result.Ok, 1, early),
        (pulsar.Result.Ok, 1, None),
        (DUPLICATE_MESSAGE, 4, None),
        (pulsar.Result.MessageTooBig, 1, None),
        (pulsar.Result.Timeout, 2, None),
    ]:
        outcome.many(result, count, last)
    outcome.wait(14)
    assert (outcome.done, outcome.duplicates, outcome.failed, outcome.last) == (14, 4, 3, late)
    with pytest.raises(pulsar.MessageTooBig):
        outcome.raise_failure()


def test_ordering_key_precedes_partition_key():
    """The ordering key is used even if empty, otherwise the partition key."""
    both = {"ordering_key": "o", "partition_key": "p"}
    assert [
        key_of(options) for options in (both, {"partition_key": "p"}, {"ordering_key": "", "partition_key": "p"}, {})
    ] == [
        "o",
        "p",
        "",
        "",
    ]


def refuse():
    """Raise, in place of a thread that must not wait."""
    raise BlockingIOError


def test_enter_stops_at_the_limit():
    """Three messages enter a limit of three; a fourth enters after a release."""
    limit = PendingMessages(3)
    for _ in range(3):
        limit.enter(refuse)
    with pytest.raises(BlockingIOError):
        limit.enter(refuse)
    limit.release(1)
    limit.enter(refuse)


def test_waiting_enter_returns_after_release():
    """A waiting `enter()` returns after a release."""
    limit, waits, entered = PendingMessages(1), threading.Event(), threading.Event()
    limit.enter(refuse)
    waiter = threading.Thread(target=lambda: (limit.enter(waits.set), entered.set()))
    waiter.start()
    assert waits.wait(30)
    assert not entered.is_set()
    limit.release(1)
    waiter.join(30)
    assert entered.is_set()


def test_bar_ends_waits_for_room():
    """After `bar()`, every `enter()` returns, including those that wait."""
    limit, waits = PendingMessages(1), threading.Event()
    limit.enter(refuse)
    waiter = threading.Thread(target=limit.enter, args=(waits.set,))
    waiter.start()
    assert waits.wait(30)
    limit.bar()
    waiter.join(30)
    assert not waiter.is_alive()
    limit.enter(refuse)
