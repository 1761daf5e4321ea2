"""The owner of what a consumer received: epochs, numbers and transitions, without a broker, a thread or a clock."""

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
from pulsar_ext.receive.order import Part, ReceiveOrder, Transition
from pulsar_ext.receive.receiver import Interrupted

MINE, OTHERS = 1, 2


class Heard(Part):
    """Notes what it hears, and refuses what it is asked to refuse."""

    def __init__(self, heard, name, refused=None):
        self.heard, self.name, self.refused = heard, name, refused

    def before(self, transition):
        if transition is self.refused:
            raise ZeroDivisionError
        self.heard.append((self.name, "before"))

    def after(self, _):
        self.heard.append((self.name, "after"))

    def abandon(self, _):
        self.heard.append((self.name, "abandon"))

    def renew(self, inner, ahead):
        self.heard.append((self.name, inner, [*ahead]))


class Ground:
    """A C++ object that can be replaced, unless opening fails."""

    def __init__(self, heard):
        self.heard, self.failures = heard, 0

    def retire(self):
        self.heard.append("retire")

    def open_anew(self):
        if self.failures:
            self.failures -= 1
            raise ConnectionError
        self.heard.append("open")
        return "new", iter([1])


def parts(refused_by=None, transition=Transition.SEEK):
    """An order with three parts, and what they hear."""
    order, heard = ReceiveOrder(numbers=True), []
    for name in "abc":
        order.take_part(Heard(heard, name, transition if name == refused_by else None))
    return order, heard


@pytest.mark.parametrize("transition", Transition)
def test_every_part_hears_before_and_after(transition):
    """Each part gets ready before the cursor moves, in order, and each hears of it when it has moved."""
    order, heard = parts()
    with order.passing(transition):
        heard.append("moved")
    assert heard == [("a", "before"), ("b", "before"), ("c", "before"), "moved"] + [(name, "after") for name in "abc"]


REPLACING = [transition for transition in Transition if transition.replaces]


@pytest.mark.parametrize("transition", REPLACING)
def test_another_object_is_opened_when_every_part_has_dropped_what_it_kept(transition):
    """The old object is closed, each part hears that the cursor moved, and only then is there a new one."""
    order, heard = parts()
    order.foundation = Ground(heard)
    with order.passing(transition):
        heard.append("moved")
    after = [(name, "after") for name in "abc"]
    assert heard[3:] == ["moved", "retire", *after, "open", ("a", "new", [1]), ("b", "new", []), ("c", "new", [])]


def test_an_object_that_could_not_be_opened_is_opened_later():
    """Opening fails twice: the transition says so, and whoever comes next has it opened, once."""
    order, heard = parts()
    ground = Ground(heard)
    order.foundation = ground
    ground.failures = 2
    with pytest.raises(ConnectionError), order.passing(Transition.SEEK):
        pass
    with pytest.raises(ConnectionError):
        order.renew()
    order.renew()
    order.renew()
    assert heard.count("open") == 1


def test_a_transition_that_is_out_of_date_is_refused_before_any_part_hears():
    """Its check is made when no other one is under way: what it raises leaves everything as it is."""
    order, heard = parts()
    order.foundation = Ground(heard)
    epoch = order.epoch
    with pytest.raises(ZeroDivisionError), order.passing(Transition.CURSOR_RESET, lambda: divmod(1, 0)):
        heard.append("moved")
    assert heard == []
    assert order.epoch == epoch


@pytest.mark.parametrize("transition", [Transition.SEEK, Transition.CURSOR_RESET])
@pytest.mark.parametrize("happens", [False, True])
def test_what_an_interrupted_call_had_is_dropped_if_the_transition_happens(transition, happens):
    """A seek that fails leaves it to the next call: it does not come again."""
    order, interrupted = ReceiveOrder(), Interrupted()
    order.take_part(interrupted)
    interrupted.many[MINE], interrupted.batches[MINE] = ["message"], ["another"]
    with contextlib.suppress(ConnectionError), order.passing(transition):
        if not happens:
            raise ConnectionError
    assert bool(interrupted.many) is bool(interrupted.batches) is not happens


@pytest.mark.parametrize("ends", [*Transition, "end"])
def test_what_is_ahead_is_dropped_by_whatever_comes_next(ends):
    """A first message that nobody took is not handed out behind a transition or a fork."""
    order, heard = parts()
    order.foundation = Ground(heard)
    kept = []

    class Keeping(Part):
        def renew(self, _, ahead):
            kept.append(ahead)

    order._parts[:] = [Keeping()]
    order.replace()
    if isinstance(ends, Transition):
        with order.passing(ends):
            pass
    elif ends == "end":
        order.end(object())
    assert list(kept[0]) == []


def test_a_part_that_is_interrupted_keeps_no_other_from_hearing_the_end():
    """A Ctrl-C in the first part's end: the others hear theirs, of what happened and of what failed."""
    order, heard = parts()

    class Interrupted(Part):
        def after(self, _):
            raise KeyboardInterrupt

        abandon = after

    order._parts.insert(0, Interrupted())
    with pytest.raises(KeyboardInterrupt), order.passing(Transition.SEEK):
        pass
    assert heard[3:] == [(name, "after") for name in "abc"]
    heard.clear()
    with pytest.raises(KeyboardInterrupt), order.passing(Transition.SEEK):
        raise KeyError
    assert heard[3:] == [(name, "abandon") for name in "abc"]


@pytest.mark.parametrize("transition", [one for one in Transition if one not in REPLACING])
def test_what_moves_no_cursor_keeps_its_object(transition):
    """A redelivery, an unsubscription and a close replace nothing, nor does anything that comes after the last two."""
    order, heard = parts()
    order.foundation = Ground(heard)
    with order.passing(transition):
        pass
    assert "retire" not in heard
    if not transition.brings_back:
        with order.passing(Transition.CURSOR_RESET):
            pass
        assert "retire" not in heard


def test_what_fails_is_abandoned_by_all():
    """If the cursor does not move, each part that got ready goes on as before."""
    order, heard = parts()
    with pytest.raises(KeyError), order.passing(Transition.SEEK):
        raise KeyError
    assert heard[3:] == [(name, "abandon") for name in "abc"]


def test_a_part_that_refuses_keeps_it_from_happening():
    """It and those that got ready before it go on as before, and nothing moves."""
    order, heard = parts(refused_by="b")
    with pytest.raises(ZeroDivisionError), order.passing(Transition.SEEK):
        heard.append("moved")
    assert heard == [("a", "before"), ("a", "abandon"), ("b", "abandon")]


@pytest.mark.parametrize("transition", [one for one in Transition if one is not Transition.CLOSE])
def test_nothing_stays_barred_by_what_was_interrupted_as_it_got_ready(transition):
    """A Ctrl-C at the end of a part's getting ready: fetching, looking ahead and waiting for batches go on."""

    def interrupted(part):
        class Cut(part):
            def before(self, transition):
                super().before(transition)
                raise KeyboardInterrupt

        return Cut

    source = SimpleNamespace(each=iter(()), wait=lambda _: None)
    parts = (
        interrupted(Prefetch)(None, None, source, Message, 100),
        interrupted(ScreenedSource)(source, bool),
        interrupted(Interrupted)(),
    )
    for part in parts:
        bars = {name: value for name, value in vars(part).items() if "barred" in name or "moving" in name}
        order = ReceiveOrder()
        order.take_part(part)
        with pytest.raises(KeyboardInterrupt), order.passing(transition):
            pass
        assert bars.items() <= vars(part).items()


@pytest.mark.parametrize("first", Transition)
def test_numbers_of_an_older_epoch_say_so_by_themselves(first):
    """After a transition no number from before is trusted, and what follows has numbers above all of them."""
    order = ReceiveOrder(numbers=True)
    order.number_if(wanted=True)
    old = list(islice(order.claim(MINE), 5))
    assert all(number in order.trusted() for number in old)
    with order.passing(first):
        pass
    new = list(islice(order.claim(MINE), 5))
    assert not any(number in order.trusted() for number in old)
    assert all(number in order.trusted() for number in new)
    assert max(old) < min(new)


def test_two_consumers_never_give_one_number_twice():
    """A message may be acknowledged by another consumer than it came from."""
    orders = [ReceiveOrder(numbers=True) for _ in range(3)]
    for order in orders:
        order.number_if(wanted=True)
    numbers = [number for order in orders for number in islice(order.claim(MINE), 100)]
    assert len(set(numbers)) == len(numbers)


@pytest.mark.parametrize("steps", list(permutations(["claim", "seek", "end"])))
def test_behind_an_end_every_use_is_refused(steps):
    """In whatever order a claim and a seek came: what is ready refuses, and nothing is numbered."""
    order, refusal = ReceiveOrder(numbers=True), object()
    order.number_if(wanted=True)
    for step in steps:
        if step == "claim":
            order.claim(MINE)
        elif step == "end":
            order.end(refusal)
        else:
            with order.passing(Transition.SEEK):
                pass
    assert order.run is None
    if steps[-1] == "end":
        assert order.ready is refusal
    assert order.claim(MINE) is None


def test_transitions_say_what_they_end():
    """Which replace the native object, and which have messages delivered again or make them another topic's."""
    replacing = {Transition.SEEK, Transition.CURSOR_RESET, Transition.REPLACEMENT, Transition.ANOTHER_CLUSTER}
    assert {one for one in Transition if one.replaces} == replacing
    assert {one for one in Transition if one.brings_back} == {*replacing, Transition.REDELIVERY}


def test_a_pause_has_nothing_ready_until_it_is_resumed():
    """What was ready is dropped, what is offered meanwhile is not taken, and a resume lets in what is offered then."""
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


def test_numbers_are_of_one_epoch():
    """They begin at 1 and never reach those of the next epoch; what is offered with older ones is not taken."""
    order = ReceiveOrder(numbers=True)
    order.number_if(wanted=True)
    assert (order.may_number, order.wants_numbers) == (True, True)
    assert order.trusted() == range(0)
    old = order.claim(MINE)
    assert order.trusted() == range((order.epoch << 40) + 1, (order.epoch + 1) << 40)
    order.offer(iter("ab"), old)
    assert list(order.run.messages) == [("a", order.trusted()[0]), ("b", order.trusted()[1])]
    order.begin_epoch()
    new = order.claim(MINE)
    order.offer(iter("c"), old)
    assert list(order.run.messages) == []
    order.leave_out()
    assert next(new) == order.trusted()[1]


def test_several_threads_end_the_numbers_for_good():
    """From the first claim of another thread on, nobody gets numbers."""
    order = ReceiveOrder(numbers=True)
    order.number_if(wanted=True)
    assert order.claim(MINE) is not None
    epoch = order.epoch
    assert order.claim(OTHERS) is None
    assert order.epoch > epoch
    assert (order.run, order.may_number, order.claim(MINE)) == (None, False, None)
    epoch = order.epoch
    order.number_no_more()
    assert order.epoch == epoch


def test_an_order_is_owed_what_a_part_is_owed():
    """If any is; and each part hears which messages to drop."""
    order, dropped = ReceiveOrder(), []

    class Owed(Part):
        owed = False

        def is_owed(self):
            return self.owed

        def drop_some(self, is_of_them):
            dropped.append(is_of_them)

    for part in (Part(), owed := Owed(), Owed()):
        order.take_part(part)
    assert not order.is_owed()
    owed.owed = True
    assert order.is_owed()
    order.drop_some(bool)
    assert dropped == [bool, bool]


def test_a_replacement_happens_if_it_is_wanted():
    """One that is not wanted when its turn comes changes nothing; one that is begins an epoch with the new object."""
    order, heard = parts()
    order.foundation = Ground(heard)
    order.replace(lambda: False)
    assert heard == []
    order.replace(lambda: True)
    assert heard[-4:] == ["open", ("a", "new", [1]), ("b", "new", []), ("c", "new", [])]
    assert not order.is_retired


def test_an_object_that_cannot_be_closed_is_replaced():
    """Closing it fails: it is closed again, so that whoever uses it finds out, and the next call replaces it."""
    order, heard = parts()
    order.foundation = ground = Ground(heard)
    epochs = []

    def retire():
        heard.append("retire")
        if heard.count("retire") == 1:
            raise KeyboardInterrupt

    ground.retire = retire
    with pytest.raises(KeyboardInterrupt), order.passing(Transition.SEEK):
        epochs.append(order.epoch)
    assert heard[3:] == ["retire", "retire", ("a", "after"), ("b", "after"), ("c", "after")]
    assert order.is_retired
    epochs.append(order.epoch)
    order.renew()
    assert not order.is_retired
    assert order.epoch > epochs[1] > epochs[0]


class Receiving(RuleBasedStateMachine):
    """Two threads receive from one queue, while it is sought, redelivered, numbered or not.

    The queue is a count: whoever takes from it gets the next message of its epoch. Numbers may be trusted only if the
    messages that have them came in the order of the numbers, with nothing in between that another thread took.
    """

    def __init__(self):
        super().__init__()
        self.order = ReceiveOrder(numbers=True)
        self.position = 0
        self.ahead = iter(())
        self.anothers = False
        self.taken = []
        """Number and position of what has numbers, in its order."""

    def _next(self):
        self.position += 1
        return self.position

    @rule(wanted=st.booleans())
    def number(self, wanted):
        self.order.number_if(wanted=wanted)

    @rule(thread=st.sampled_from([MINE, OTHERS]), count=st.integers(0, 5))
    def receive(self, thread, count):
        """As a receive does: what is ready first, for whoever may take it, and then anew."""
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
        if self.anothers:
            self.order.leave_out()
            self.anothers = False
        self.ahead = iter([self._next(), self._next()])
        self.order.offer(self.ahead, numbers)

    @rule(transition=st.sampled_from(Transition), fails=st.booleans())
    def passes(self, transition, fails):
        """What was ahead is gone, and the position is another one."""
        with contextlib.suppress(ZeroDivisionError), self.order.passing(transition):
            self.position += 100
            _ = 1 // (not fails)
        assert not list(self.order.ready)

    @rule(taken=st.integers(0, 2))
    def another_fetches(self, taken):
        """Nothing is ahead then, and what it fetched may be behind what this thread takes next."""
        list(self.ahead)
        self.position += taken
        self.anothers = True

    @invariant()
    def messages_between_two_are_where_their_numbers_say(self):
        """If two are as far apart as their numbers, then so is each between them."""
        trusted = self.order.trusted()
        inside = sorted(pair for pair in self.taken if pair[0] in trusted)
        for first, between, last in combinations(inside[-8:], 3):
            if last[0] - first[0] == last[1] - first[1]:
                assert between[0] - first[0] == between[1] - first[1]

    @invariant()
    def numbers_go_up(self):
        numbers = [number for number, _ in self.taken]
        assert numbers == sorted(set(numbers))


TestReceiving = Receiving.TestCase
TestReceiving.settings = settings(max_examples=300, stateful_step_count=30, deadline=None)
