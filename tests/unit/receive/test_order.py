"""The order of received messages and its transitions, without a broker, a thread or a clock."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import pytest

from pulsar_ext.message import Message
from pulsar_ext.receive.filter import ScreenedSource
from pulsar_ext.receive.order import ReceiveOrder, Transition, TransitionSubscriber
from pulsar_ext.receive.prefetch import Prefetch
from pulsar_ext.receive.receiver import Interrupted

MINE = 1


class Noting(TransitionSubscriber):
    """Notes its calls, and raises at one kind of transition."""

    def __init__(self, calls, name, raises_at=None):
        self.calls, self.name, self.raises_at = calls, name, raises_at

    def on_before(self, transition):
        if transition is self.raises_at:
            raise ZeroDivisionError
        self.calls.append((self.name, "before"))

    def on_after(self, _):
        self.calls.append((self.name, "after"))

    def on_abandon(self, _):
        self.calls.append((self.name, "abandon"))

    def on_reopen(self, inner, ahead):
        self.calls.append((self.name, inner, [*ahead]))


class Replaceable:
    """A C++ object that can be replaced, unless opening fails."""

    def __init__(self, calls):
        self.calls, self.failures = calls, 0

    def retire(self):
        self.calls.append("retire")

    def reopen_native(self):
        if self.failures:
            self.failures -= 1
            raise ConnectionError
        self.calls.append("open")
        return "new", iter([1])


def subscribed(raised_by=None, transition=Transition.SEEK):
    """Return an order with three subscribers, and the list of their calls."""
    order, calls = ReceiveOrder(), []
    for name in "abc":
        order.add_subscriber(Noting(calls, name, transition if name == raised_by else None))
    return order, calls


@pytest.mark.parametrize("transition", Transition)
def test_subscribers_are_called_before_and_after(transition):
    """Each subscriber is called before the cursor moves, in order, and again after it has moved."""
    order, calls = subscribed()
    with order.run_transition(transition):
        calls.append("moved")
    assert calls == [("a", "before"), ("b", "before"), ("c", "before"), "moved"] + [(name, "after") for name in "abc"]


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("transition", Transition)
def test_transition_drops_offered_messages(transition, fails):
    """Nothing that was offered before a transition or during it is ready, unless it failed."""
    order = ReceiveOrder()
    order.offer(iter([1]))
    with contextlib.suppress(ConnectionError), order.run_transition(transition):
        assert list(order.ready) == []
        order.offer(iter([2]))
        order.offer_made(iter([3]))
        if fails:
            raise ConnectionError
    assert [*order.made, *order.ready] == ([3, 2] if fails else [])


REPLACING = [transition for transition in Transition if transition.replaces]


@pytest.mark.parametrize("transition", REPLACING)
def test_reopens_after_subscribers_dropped_everything(transition):
    """The old object is closed, each subscriber is called after the move, and only then a new object is opened."""
    order, calls = subscribed()
    order.reopener = Replaceable(calls)
    with order.run_transition(transition):
        calls.append("moved")
    after = [(name, "after") for name in "abc"]
    assert calls[3:] == ["moved", "retire", *after, "open", ("a", "new", [1]), ("b", "new", []), ("c", "new", [])]


def test_failed_reopening_is_retried_later():
    """Opening fails twice: the transition raises, and a later call opens the object once."""
    order, calls = subscribed()
    native = Replaceable(calls)
    order.reopener = native
    native.failures = 2
    with pytest.raises(ConnectionError), order.run_transition(Transition.SEEK):
        pass
    with pytest.raises(ConnectionError):
        order.reopen()
    order.reopen()
    order.reopen()
    assert calls.count("open") == 1


def test_outdated_transition_notifies_no_subscriber():
    """The check runs after other transitions; if it raises, nothing has changed."""
    order, calls = subscribed()
    order.reopener = Replaceable(calls)
    with pytest.raises(ZeroDivisionError), order.run_transition(Transition.CURSOR_RESET, lambda: divmod(1, 0)):
        calls.append("moved")
    assert calls == []


@pytest.mark.parametrize("transition", [Transition.SEEK, Transition.CURSOR_RESET])
@pytest.mark.parametrize("happens", [False, True])
def test_transition_drops_messages_of_interrupted_calls(transition, happens):
    """A seek drops the messages of interrupted calls; after a failed seek the next call returns them."""
    order, interrupted = ReceiveOrder(), Interrupted()
    order.add_subscriber(interrupted)
    interrupted.many[MINE], interrupted.batches[MINE] = ["message"], ["another"]
    with contextlib.suppress(ConnectionError), order.run_transition(transition):
        if not happens:
            raise ConnectionError
    assert bool(interrupted.many) is bool(interrupted.batches) is not happens


@pytest.mark.parametrize("ends", [*Transition, "end"])
def test_next_transition_drops_first_messages(ends):
    """First messages that were not taken are not delivered after a transition or a fork."""
    order, calls = subscribed()
    order.reopener = Replaceable(calls)
    kept = []

    class Keeping(TransitionSubscriber):
        def on_reopen(self, _, ahead):
            kept.append(ahead)

    order._subscribers[:] = [Keeping()]
    order.replace()
    if isinstance(ends, Transition):
        with order.run_transition(ends):
            pass
    elif ends == "end":
        order.end(object())
    assert list(kept[0]) == []


def test_interrupted_subscriber_does_not_stop_the_others():
    """After a Ctrl-C in the first subscriber, the others are still notified of a success and of a failure."""
    order, calls = subscribed()

    class Interrupted(TransitionSubscriber):
        def on_after(self, _):
            raise KeyboardInterrupt

        on_abandon = on_after

    order._subscribers.insert(0, Interrupted())
    with pytest.raises(KeyboardInterrupt), order.run_transition(Transition.SEEK):
        pass
    assert calls[3:] == [(name, "after") for name in "abc"]
    calls.clear()
    with pytest.raises(KeyboardInterrupt), order.run_transition(Transition.SEEK):
        raise KeyError
    assert calls[3:] == [(name, "abandon") for name in "abc"]


@pytest.mark.parametrize("transition", [one for one in Transition if one not in REPLACING])
def test_other_transitions_keep_the_native_object(transition):
    """A redelivery, an unsubscription and a close replace nothing, nor does a transition after the last two."""
    order, calls = subscribed()
    order.reopener = Replaceable(calls)
    with order.run_transition(transition):
        pass
    assert "retire" not in calls
    if not transition.redelivers:
        with order.run_transition(Transition.CURSOR_RESET):
            pass
        assert "retire" not in calls


def test_failed_transition_is_abandoned_by_all():
    """Each prepared subscriber continues as before if the cursor does not move."""
    order, calls = subscribed()
    with pytest.raises(KeyError), order.run_transition(Transition.SEEK):
        raise KeyError
    assert calls[3:] == [(name, "abandon") for name in "abc"]


def test_raising_subscriber_prevents_the_transition():
    """The raising subscriber and those prepared before it are abandoned, and the cursor does not move."""
    order, calls = subscribed(raised_by="b")
    with pytest.raises(ZeroDivisionError), order.run_transition(Transition.SEEK):
        calls.append("moved")
    assert calls == [("a", "before"), ("a", "abandon"), ("b", "abandon")]


@pytest.mark.parametrize("transition", [one for one in Transition if one is not Transition.CLOSE])
def test_interrupted_on_before_leaves_nothing_blocked(transition):
    """After a Ctrl-C at the end of `on_before()`, fetching, screening ahead and waiting for batches continue."""

    def interrupted(part):
        class Cut(part):
            def on_before(self, transition):
                super().on_before(transition)
                raise KeyboardInterrupt

        return Cut

    source = SimpleNamespace(each=iter(()), wait=lambda _: None)
    parts = (
        (interrupted(Prefetch)(None, source, Message, 100), "_is_moving"),
        (interrupted(ScreenedSource)(source, bool), "_is_blocked"),
        (interrupted(Interrupted)(), "_is_closing"),
    )
    for part, flag in parts:
        order = ReceiveOrder()
        order.add_subscriber(part)
        with pytest.raises(KeyboardInterrupt), order.run_transition(transition):
            pass
        assert getattr(part, flag) is False


@pytest.mark.parametrize("ends_first", [False, True])
def test_every_use_raises_after_end(ends_first):
    """After `end()`, before or after a seek, nothing is ready that a receive could return."""
    order, raising = ReceiveOrder(), object()
    order.offer(iter([1]))
    if ends_first:
        order.end(raising)
    with order.run_transition(Transition.SEEK):
        pass
    if ends_first:
        assert list(order.ready) == []
    else:
        order.end(raising)
        assert order.ready is raising
    assert list(order.made) == []


def test_transitions_know_their_effects():
    """Some transitions replace the native object, and these and a redelivery have messages redelivered."""
    replacing = {Transition.SEEK, Transition.CURSOR_RESET, Transition.REPLACEMENT, Transition.ANOTHER_CLUSTER}
    assert {one for one in Transition if one.replaces} == replacing
    assert {one for one in Transition if one.redelivers} == {*replacing, Transition.REDELIVERY}


def test_nothing_is_ready_during_a_pause():
    """A pause drops ready messages and ignores offered ones; after a resume, offered messages are ready."""
    order = ReceiveOrder()
    flags = order.is_paused, order.is_silent, order.is_retired
    assert (flags, order.cluster) == ((False,) * 3, 0)
    order.offer(iter([1]))
    order.pause()
    order.offer(iter([2]))
    assert order.is_paused
    assert list(order.ready) == []
    order.resume()
    assert not order.is_paused
    order.offer(iter([3]))
    assert list(order.ready) == [3]


def test_order_awaits_answers_of_its_subscribers():
    """The order awaits an answer if a subscriber does; dropped topics are passed to each subscriber."""
    order, dropped = ReceiveOrder(), []

    class Awaiting(TransitionSubscriber):
        awaits = False

        def awaits_answer(self):
            return self.awaits

        def drop_topics(self, is_affected):
            dropped.append(is_affected)

    for part in (TransitionSubscriber(), awaiting := Awaiting(), Awaiting()):
        order.add_subscriber(part)
    assert not order.awaits_answer()
    awaiting.awaits = True
    assert order.awaits_answer()
    order.drop_topics(bool)
    assert dropped == [bool, bool]


def test_unwanted_replacement_changes_nothing():
    """A replacement that is not wanted any more changes nothing; a wanted one opens a new object."""
    order, calls = subscribed()
    order.reopener = Replaceable(calls)
    order.replace(lambda: False)
    assert calls == []
    order.replace(lambda: True)
    assert calls[-4:] == ["open", ("a", "new", [1]), ("b", "new", []), ("c", "new", [])]
    assert not order.is_retired


def test_native_object_that_fails_to_close_is_replaced():
    """An object that failed to close is closed again, so that its users detect it, and the next call replaces it."""
    order, calls = subscribed()
    order.reopener = native = Replaceable(calls)

    def retire():
        calls.append("retire")
        if calls.count("retire") == 1:
            raise KeyboardInterrupt

    native.retire = retire
    with pytest.raises(KeyboardInterrupt), order.run_transition(Transition.SEEK):
        pass
    assert calls[3:] == ["retire", "retire", ("a", "after"), ("b", "after"), ("c", "after")]
    assert order.is_retired
    order.reopen()
    assert not order.is_retired
