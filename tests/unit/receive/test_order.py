"""The order of received messages: epochs, numbers and transitions, without a broker, a thread or a clock."""

from __future__ import annotations

import contextlib
from itertools import combinations, islice, permutations
from types import SimpleNamespace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from pulsar_ext.message import Message
from pulsar_ext.receive.filter import ScreenedSource
from pulsar_ext.receive.many import Prefetch
from pulsar_ext.receive.order import ReceiveOrder, Transition, TransitionSubscriber
from pulsar_ext.receive.receiver import Interrupted

MINE, OTHER = 1, 2


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
    order, calls = ReceiveOrder(numbers=True), []
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
    epoch = order.epoch
    with pytest.raises(ZeroDivisionError), order.run_transition(Transition.CURSOR_RESET, lambda: divmod(1, 0)):
        calls.append("moved")
    assert calls == []
    assert order.epoch == epoch


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
        interrupted(Prefetch)(None, None, source, Message, 100),
        interrupted(ScreenedSource)(source, bool),
        interrupted(Interrupted)(),
    )
    for part in parts:
        blocks = {name: value for name, value in vars(part).items() if "block" in name or "moving" in name}
        order = ReceiveOrder()
        order.add_subscriber(part)
        with pytest.raises(KeyboardInterrupt), order.run_transition(transition):
            pass
        assert blocks.items() <= vars(part).items()


@pytest.mark.parametrize("first", Transition)
def test_numbers_of_older_epochs_are_recognised(first):
    """After a transition, no earlier number belongs to the epoch, and later numbers are greater than earlier ones."""
    order = ReceiveOrder(numbers=True)
    order.set_numbering(wanted=True)
    old = list(islice(order.claim(MINE), 5))
    assert all(number in order.epoch_numbers() for number in old)
    with order.run_transition(first):
        pass
    new = list(islice(order.claim(MINE), 5))
    assert not any(number in order.epoch_numbers() for number in old)
    assert all(number in order.epoch_numbers() for number in new)
    assert max(old) < min(new)


def test_numbers_are_unique_across_consumers():
    """A message may be acknowledged by another consumer, so consumers never share a number."""
    orders = [ReceiveOrder(numbers=True) for _ in range(3)]
    for order in orders:
        order.set_numbering(wanted=True)
    numbers = [number for order in orders for number in islice(order.claim(MINE), 100)]
    assert len(set(numbers)) == len(numbers)


@pytest.mark.parametrize("steps", list(permutations(["claim", "seek", "end"])))
def test_every_use_raises_after_end(steps):
    """After `end()`, in any order with a claim and a seek, receives raise and nothing is numbered."""
    order, raising = ReceiveOrder(numbers=True), object()
    order.set_numbering(wanted=True)
    for step in steps:
        if step == "claim":
            order.claim(MINE)
        elif step == "end":
            order.end(raising)
        else:
            with order.run_transition(Transition.SEEK):
                pass
    assert order.run is None
    if steps[-1] == "end":
        assert order.ready is raising
    assert order.claim(MINE) is None


def test_transitions_know_their_effects():
    """Some transitions replace the native object, and these and a redelivery have messages redelivered."""
    replacing = {Transition.SEEK, Transition.CURSOR_RESET, Transition.REPLACEMENT, Transition.ANOTHER_CLUSTER}
    assert {one for one in Transition if one.replaces} == replacing
    assert {one for one in Transition if one.redelivers} == {*replacing, Transition.REDELIVERY}


def test_nothing_is_ready_during_a_pause():
    """A pause drops ready messages and ignores offered ones; after a resume, offered messages are ready."""
    order = ReceiveOrder()
    flags = order.is_paused, order.is_silent, order.is_retired, order.may_number, order.wants_numbers
    assert (flags, order.cluster) == ((False,) * 5, 0)
    order.offer(iter([1]), None)
    order.pause()
    order.offer(iter([2]), None)
    assert order.is_paused
    assert list(order.ready) == []
    order.resume()
    assert not order.is_paused
    order.offer(iter([3]), None)
    assert list(order.ready) == [3]


def test_numbers_belong_to_one_epoch():
    """Numbers begin at 1 and never reach the next epoch's; offers with older numbers are ignored."""
    order = ReceiveOrder(numbers=True)
    order.set_numbering(wanted=True)
    assert (order.may_number, order.wants_numbers) == (True, True)
    assert order.epoch_numbers() == range(0)
    old = order.claim(MINE)
    assert order.epoch_numbers() == range((order.epoch << 40) + 1, (order.epoch + 1) << 40)
    order.offer(iter("ab"), old)
    assert list(order.run.messages) == [("a", order.epoch_numbers()[0]), ("b", order.epoch_numbers()[1])]
    order.begin_epoch()
    new = order.claim(MINE)
    order.offer(iter("c"), old)
    assert list(order.run.messages) == []
    order.skip_number()
    assert next(new) == order.epoch_numbers()[1]


def test_second_thread_ends_numbering():
    """After the first claim of a second thread, no thread gets numbers."""
    order = ReceiveOrder(numbers=True)
    order.set_numbering(wanted=True)
    assert order.claim(MINE) is not None
    epoch = order.epoch
    assert order.claim(OTHER) is None
    assert order.epoch > epoch
    assert (order.run, order.may_number, order.claim(MINE)) == (None, False, None)
    epoch = order.epoch
    order.stop_numbering()
    assert order.epoch == epoch


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
    """A replacement that is not wanted any more changes nothing; a wanted one begins an epoch with a new object."""
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
    epochs = []

    def retire():
        calls.append("retire")
        if calls.count("retire") == 1:
            raise KeyboardInterrupt

    native.retire = retire
    with pytest.raises(KeyboardInterrupt), order.run_transition(Transition.SEEK):
        epochs.append(order.epoch)
    assert calls[3:] == ["retire", "retire", ("a", "after"), ("b", "after"), ("c", "after")]
    assert order.is_retired
    epochs.append(order.epoch)
    order.reopen()
    assert not order.is_retired
    assert order.epoch > epochs[1] > epochs[0]


class Receiving(RuleBasedStateMachine):
    """Two threads receive from one queue during seeks, redeliveries and changes of the numbering.

    The queue is a count: a receive gets the next message of its epoch. Numbers may belong to the epoch only if their
    messages arrived in the order of the numbers, without a message in between that another thread received.
    """

    def __init__(self):
        super().__init__()
        self.order = ReceiveOrder(numbers=True)
        self.position = 0
        self.ahead = iter(())
        self.fetched_by_other = False
        self.taken = []
        """Number and position of each numbered message, in order."""

    def _next(self):
        self.position += 1
        return self.position

    @rule(wanted=st.booleans())
    def number(self, wanted):
        self.order.set_numbering(wanted=wanted)

    @rule(thread=st.sampled_from([MINE, OTHER]), count=st.integers(0, 5))
    def receive(self, thread, count):
        """Receive ready messages first, and then refill."""
        order = self.order
        for _ in range(count):
            run = order.run
            for message in order.ready:
                assert run is None, "messages without numbers are ready beside some with numbers"
                assert message
                break
            else:
                if run is not None and run.thread == thread:
                    for message, number in run.messages:
                        self.taken.append((number, message))
                        break
                    else:
                        self._refill(thread)
                else:
                    self._refill(thread)

    def _refill(self, thread):
        numbers = self.order.claim(thread)
        if self.fetched_by_other:
            self.order.skip_number()
            self.fetched_by_other = False
        self.ahead = iter([self._next(), self._next()])
        self.order.offer(self.ahead, numbers)

    @rule(transition=st.sampled_from(Transition), fails=st.booleans())
    def transition(self, transition, fails):
        """Drop ready messages, and change the position."""
        with contextlib.suppress(ZeroDivisionError), self.order.run_transition(transition):
            self.position += 100
            _ = 1 // (not fails)
        assert not list(self.order.ready)

    @rule(taken=st.integers(0, 2))
    def other_thread_fetches(self, taken):
        """Exhaust the prefetched messages; this thread's next one may precede those of the other thread."""
        list(self.ahead)
        self.position += taken
        self.fetched_by_other = True

    @invariant()
    def numbers_match_positions(self):
        """Two numbers that differ as their positions do enclose only such numbers."""
        epoch_numbers = self.order.epoch_numbers()
        inside = sorted(pair for pair in self.taken if pair[0] in epoch_numbers)
        for first, between, last in combinations(inside[-8:], 3):
            if last[0] - first[0] == last[1] - first[1]:
                assert between[0] - first[0] == between[1] - first[1]

    @invariant()
    def numbers_increase(self):
        numbers = [number for number, _ in self.taken]
        assert numbers == sorted(set(numbers))


TestReceiving = Receiving.TestCase
TestReceiving.settings = settings(max_examples=300, stateful_step_count=30, deadline=None)
