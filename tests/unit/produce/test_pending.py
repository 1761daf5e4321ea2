"""The messages that a sender has accepted: their limit, and their outcomes; and the check for keys in mixed batches."""

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
from pulsar_ext.produce.outcome import DUPLICATE_MESSAGE, BulkOutcome
from pulsar_ext.produce.pending import PendingMessages


def test_room_comes_back_with_the_outcome_and_the_flush_waits_for_the_callbacks():
    """Released messages leave room; completed ones end waits."""
    pending = PendingMessages(2)
    pending.accepted = 2
    assert not pending.has_room()
    pending.release(1)
    assert pending.has_room()
    assert not pending.has_room(2)
    assert not pending.wait_for(lambda: pending.completed >= 2, 0.001)
    assert not pending.complete(1)
    assert pending.complete(1)
    pending.wait_for_all()


@given(st.integers(1, 20), st.lists(st.integers(1, 30), max_size=30), st.data())
def test_no_more_chunks_than_the_limit_are_inside_except_one_giant(limit, chunks, data):
    """Whatever enters and leaves, the sum inside stays within the limit, or a single message exceeds it alone."""
    pending, inside = PendingMessages(limit), []
    for places in chunks:
        if pending.has_room(places):
            pending.accepted += 1
            pending.burden += places - 1
            inside.append(places)
        assert sum(inside) <= limit or len(inside) == 1
        if inside and data.draw(st.booleans()):
            pending.release(1, inside.pop() - 1)
    for places in inside:
        pending.release(1, places - 1)
    assert pending.has_room(limit)


@pytest.mark.parametrize("flag", ["held", "barred"])
def test_nothing_enters_where_nothing_may(flag):
    """However much room there is."""
    pending = PendingMessages(0)
    assert pending.has_room(1_000_000)
    setattr(pending, flag, True)
    assert not pending.has_room()


def test_the_first_failure_is_kept_for_one_flush_and_a_duplicate_is_none():
    """Until a flush has reported it."""
    pending = PendingMessages(0)
    pending.accepted = 3
    for result in (pulsar.Result.Ok, DUPLICATE_MESSAGE, pulsar.Result.Timeout, pulsar.Result.AlreadyClosed):
        pending.fail(result, 3)
    assert pending.failure_since(pending.begin_flush(), 3) == pulsar.Result.Timeout
    assert pending.failure_since(pending.begin_flush(), 3) is None


def test_each_flush_that_began_before_a_failure_reports_it():
    """Two at once report the same failure, a third that began later does not."""
    pending = PendingMessages(0)
    pending.accepted = 2
    one, another = pending.begin_flush(), pending.begin_flush()
    pending.fail(pulsar.Result.Timeout, 2)
    assert pending.failure_since(one, 2) == pulsar.Result.Timeout
    third = pending.begin_flush()
    assert pending.failure_since(another, 2) == pulsar.Result.Timeout
    assert pending.failure_since(third, 2) is None


@pytest.mark.parametrize("accepted", [3, None], ids=["accepted", "refused"])
def test_a_failure_of_what_was_sent_behind_a_flush_is_kept_for_the_next(accepted):
    """The thread that sent it has not flushed yet."""
    pending = PendingMessages(0)
    begun, pending.accepted = pending.begin_flush(), 3
    pending.fail(pulsar.Result.Timeout, accepted)
    assert pending.failure_since(begun, 2) == pulsar.Result.Timeout
    assert pending.failure_since(pending.begin_flush(), 3) == pulsar.Result.Timeout
    assert pending.failure_since(pending.begin_flush(), 3) is None


class Named:
    """What the warning names."""

    def topic(self):
        return "t"


class Context:
    """A client's context whose admin API knows one subscription, and answers when it is told to."""

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


def test_a_key_warns_when_it_is_known_that_the_topic_is_shared_by_key_and_never_again():
    """At the line that sends, also where the warning is raised as an error."""
    context = Context("Key_Shared")
    check = mixed_key_check(MIXED, context)
    assert check.look({"properties": {}}, Named()) is check
    assert check.look({"partition_key": ""}, Named()) is check
    assert check.look({"partition_key": ""}, Named()) is check
    context.answer()
    with pytest.warns(MixedKeyBatchWarning, match="producer on t") as warned:
        assert check.look({"partition_key": ""}, Named()) is None
    assert warned[0].filename == __file__
    check = mixed_key_check(MIXED, context)
    check.look({"ordering_key": "a"}, Named())
    context.answer()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(MixedKeyBatchWarning):
            check.look({"ordering_key": "a"}, Named())
        assert check.look({"ordering_key": "a"}, Named()) is None


@pytest.mark.parametrize("kind", ["Shared", None])
def test_where_nobody_is_known_to_share_by_key_nothing_is_said(kind):
    """A subscription of another type, or an admin API that does not answer: silence, and no look at later messages."""
    context = Context(kind)
    check = mixed_key_check(MIXED, context)
    check.look({"partition_key": "a"}, Named())
    context.answer()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert check.look({"partition_key": "a"}, Named()) is None


@pytest.mark.parametrize(
    "named",
    [
        {"batching_enabled": False, "batching_type": pulsar.BatchingType.Default},
        {"batching_enabled": True, "batching_type": pulsar.BatchingType.KeyBased},
    ],
)
def test_what_mixes_nothing_is_not_checked(named):
    """No batches, or batches by key."""
    assert mixed_key_check(named, Context("Key_Shared")) is None


def test_a_bulk_outcome_keeps_the_last_id_and_the_first_failure():
    """Duplicates and failures count; ids may come in any order, and partitions without one."""
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


def test_an_entry_goes_by_the_ordering_key():
    """Else by the partition key; an empty ordering key is a key."""
    both = {"ordering_key": "o", "partition_key": "p"}
    assert [key_of(one) for one in (both, {"partition_key": "p"}, {"ordering_key": "", "partition_key": "p"}, {})] == [
        "o",
        "p",
        "",
        "",
    ]


def refuse():
    """Stand for a thread that may not wait."""
    raise BlockingIOError


def test_no_more_than_the_limit_is_inside():
    """Three enter a limit of three, a fourth does not before one has left."""
    limit = PendingMessages(3)
    for _ in range(3):
        limit.enter(refuse)
    with pytest.raises(BlockingIOError):
        limit.enter(refuse)
    limit.release(1)
    limit.enter(refuse)


def test_a_waiting_message_enters_when_room_appears():
    """enter() returns once another message has left."""
    limit, waits, entered = PendingMessages(1), threading.Event(), threading.Event()
    limit.enter(refuse)
    waiter = threading.Thread(target=lambda: (limit.enter(waits.set), entered.set()))
    waiter.start()
    assert waits.wait(30)
    assert not entered.is_set()
    limit.release(1)
    waiter.join(30)
    assert entered.is_set()


def test_a_barred_limit_lets_everybody_in():
    """Behind bar() the producer refuses messages itself, those that waited included."""
    limit, waits = PendingMessages(1), threading.Event()
    limit.enter(refuse)
    waiter = threading.Thread(target=limit.enter, args=(waits.set,))
    waiter.start()
    assert waits.wait(30)
    limit.bar()
    waiter.join(30)
    assert not waiter.is_alive()
    limit.enter(refuse)
