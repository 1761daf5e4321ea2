"""Every two and three moves of a consumer in every order, on the model: all of them, and random ones among receives."""

from __future__ import annotations

from itertools import chain, product
from typing import TYPE_CHECKING, Any, Final

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from pairs_model import ERRORS, MOVES, PLACES, WAYS, World

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["every_order", "every_two_at_once", "run_machine"]

_WORLDS: Final = [
    {"is_shared": is_shared, "fetches": fetches} for is_shared in (False, True) for fetches in (False, True)
]
_UNWAITED: Final = ("close", "fork", "reconnect")
"""Moves that may happen during another one: the others wait for its end."""


def every_order() -> Iterator[tuple[World, list[tuple[Any, ...]]]]:
    """Yield each two and three moves in each order, and each failing one before, after and beside them."""
    good = [(what,) for what in MOVES]
    failing = list(product(MOVES, PLACES, ERRORS))
    orders = chain(
        product(good, repeat=2),
        product(good, repeat=3),
        product(failing, good),
        product(good, failing),
    )
    for moves in orders:
        for kind in _WORLDS:
            yield World(**kind), list(moves)


def every_two_at_once() -> Iterator[tuple[World, tuple[str, str, str]]]:
    """Yield each move, each step of it, and each other move that happens there."""
    for moves in product(MOVES, PLACES, _UNWAITED):
        for kind in _WORLDS:
            yield World(**kind), moves


def try_order(world: World, moves: list[tuple[Any, ...]]) -> bool:
    """Carry out moves, with messages of an interrupted receive, received ones, and later ones.

    Return False if one does not have the step at which it should fail: another order has that move without a failure.
    """
    for move in moves:
        world.receive("many", interrupted=1)
        world.receive("one", count=1)
        world.acknowledge()
        world.move(*move)
        world.check()
        if world.is_unreached:
            return False
        world.send(1)
    world.drain()
    world.check()
    return True


def try_at_once(world: World, moves: tuple[str, str, str]) -> None:
    """Carry out a move during another one."""
    world.receive("many", interrupted=1)
    world.receive("one", count=1)
    world.move_within(*moves)
    world.check()
    world.drain()


class Moving(RuleBasedStateMachine):
    """A consumer that is received from on two threads, while it is moved."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(is_shared=False, fetches=True)

    @rule(kind=st.sampled_from(_WORLDS))
    def begin(self, kind: dict[str, bool]) -> None:
        """Start with another kind of consumer."""
        self.world.drain()
        self.world = World(**kind)

    @rule(count=st.integers(1, 12))
    def send(self, count: int) -> None:
        self.world.send(count)

    @rule(how=st.sampled_from(WAYS), thread=st.integers(1, 2), count=st.integers(1, 8), interrupted=st.integers(-1, 4))
    def receive(self, how: str, thread: int, count: int, interrupted: int) -> None:
        self.world.receive(how, thread, count, interrupted)

    @rule()
    def acknowledge(self) -> None:
        self.world.acknowledge()

    @rule(begins=st.booleans())
    def doubt(self, begins: bool) -> None:
        self.world.doubt(begins=begins)

    @rule(what=st.sampled_from(MOVES))
    def move(self, what: str) -> None:
        self.world.move(what)

    @rule(what=st.sampled_from(MOVES), place=st.sampled_from(PLACES), error=st.sampled_from(ERRORS))
    def fail(self, what: str, place: str, error: type[BaseException]) -> None:
        self.world.move(what, place, error)

    @rule(what=st.sampled_from(MOVES), place=st.sampled_from(PLACES), other=st.sampled_from(_UNWAITED))
    def at_once(self, what: str, place: str, other: str) -> None:
        self.world.move_within(what, place, other)

    @invariant()
    def holds(self) -> None:
        self.world.check()

    def teardown(self) -> None:
        """Check that nothing is missing."""
        self.world.drain()


def run_machine(examples: int, steps: int = 20) -> None:
    """Try `examples` random sequences; raise with the shortest one that fails."""
    options = settings(
        max_examples=examples, stateful_step_count=steps, deadline=None, suppress_health_check=list(HealthCheck)
    )
    run_state_machine_as_test(Moving, settings=options)  # type: ignore[no-untyped-call]
