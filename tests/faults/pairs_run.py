"""A run: two operations at once while messages are received, and then a comparison with the broker's state."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any, Final

import pulsar as official
from acks_common import SUBSCRIPTION
from interrupt_health import silent_schedulers
from pairs_operations import BREAKING, ENDING, KILL, MOVING, OPERATIONS
from pairs_rig import Case, Rig, describe, stack_of

import pulsar_ext
from pulsar_ext import AdminError, AlreadyClosed, SkipInsideMessage

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["run_case"]

_DELAY_SECONDS: Final = 0.2
_CALL_SECONDS: Final = 45.0
_KILLED_SECONDS: Final = 240.0
"""A killed broker is restarted for several runs."""
_RECEIVE_SECONDS: Final = 20.0
_RECONNECT_SECONDS: Final = 90.0
"""The longer a broker was down, the longer the C++ client waits before it retries."""
_TAIL: Final = 5


class _Run:
    """A run of a case.

    Args:
        case: the case.
        urls: the service URL and the admin URL of the broker.
        kill: kills the broker and restarts it.
        ready: is called when everything is open.
    """

    def __init__(self, case: Case, urls: tuple[str, str], kill: Callable[[], None], ready: Callable[[], None]) -> None:
        self.case, self.rig, self._kill, self._ready = case, Rig(case, urls), kill, ready
        self.succeeded: set[str] = set()
        self._call_seconds, self._receive_seconds = _CALL_SECONDS, _RECEIVE_SECONDS

    def run(self) -> list[str]:
        """Carry out the run; return its problems."""
        rig = self.rig
        try:
            try:
                rig.open()
            finally:
                self._ready()
            hangs = self._operate()
            rig.forgets = False
            if not hangs:
                if rig.ended.is_set():
                    self._check_ended()
                else:
                    self._check_open()
        except Exception as error:  # noqa: BLE001  # a finding
            rig.problems.append(f"the run itself: {describe(error)}")
        finally:
            closing = threading.Thread(target=rig.close, daemon=True)
            closing.start()
            closing.join(_CALL_SECONDS)
            if closing.is_alive():
                rig.problems.append(f"closing the client hangs: {stack_of(closing)}")
        return rig.problems

    # -- the two operations ------------------------------------------------------------------------------------------

    def _operate(self) -> bool:
        """Carry out both operations; return True if one hangs."""
        if KILL in self.case.operations:
            self._call_seconds, self._receive_seconds = _KILLED_SECONDS, _RECONNECT_SECONDS
        delays = [self.rig.dice.random() * _DELAY_SECONDS for _ in range(2)]
        threads = [
            threading.Thread(target=self._do, args=(name, delay), daemon=True, name=name)
            for name, delay in zip(self.case.operations, delays, strict=True)
        ]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + self._call_seconds
        for thread in threads:
            thread.join(max(deadline - time.monotonic(), 0.01))
        hanging = [thread for thread in threads if thread.is_alive()]
        self.rig.problems += [f"{thread.name} hangs: {stack_of(thread)}" for thread in hanging]
        return bool(hanging)

    def _do(self, name: str, delay: float) -> None:
        time.sleep(delay)
        try:
            if name == KILL:
                self._kill()
            else:
                OPERATIONS[name](self.rig)
            self.succeeded.add(name)
        except BaseException as error:  # noqa: BLE001  # checked below
            if not self._may_raise(error):
                self.rig.problems.append(f"{name} raised {describe(error)}")

    def _may_raise(self, error: BaseException) -> bool:
        both = set(self.case.operations)
        if isinstance(error, official.PulsarException | AdminError | pulsar_ext.NotOpen) and both & {*ENDING}:
            return True
        if isinstance(error, official.PulsarException | AdminError) and both & {*BREAKING}:
            return not isinstance(error, AlreadyClosed)
        return isinstance(error, SkipInsideMessage)

    # -- what has to be true afterwards ------------------------------------------------------------------------------

    def _check_open(self) -> None:
        """Check a live consumer: every message is received, and acknowledged, or delivered to another consumer."""
        rig, record = self.rig, self.rig.record
        rig.send(_TAIL)
        if not rig.wait(lambda: len(self._missing()) <= record.skipped, self._receive_seconds):
            rig.problems.append(f"not received: {sorted(self._missing())} of {rig.sent}; {self._backlog()}")
        if not rig.wait(lambda: not self._not_again(), self._receive_seconds):
            rig.problems.append(f"not received after the seek: {sorted(self._not_again())} of {rig.sent}")
        rig.problems += silent_schedulers(rig.client)
        if rig.dice.random() < 0.5:
            while (message := rig.take_held()) is not None:
                rig.acknowledge(rig.consumer, message)
            if not rig.wait(lambda: not self._backlog(), self._receive_seconds):
                rig.problems.append(f"everything was acknowledged, and there is {self._backlog()}")
            rig.stop()
            rig.consumer.flush_acks(confirm=True)
            rig.consumer.close()
        else:
            rig.stop()
            rig.consumer.close()
            self._check_another()

    def _check_ended(self) -> None:
        """Check an ended consumer: it receives nothing; unacknowledged messages reach another consumer."""
        rig = self.rig
        rig.stop()
        if self.succeeded & {*ENDING}:
            try:
                rig.consumer.receive(100)
                rig.problems.append("a message was received after the end")
            except (AlreadyClosed, pulsar_ext.NotOpen):
                pass
        if "unsubscribe" in self.succeeded:
            # When an operator adds partitions, the broker recreates each subscription that it listed just before.
            if "partitions" not in self.case.operations and not self._eventually(lambda: not self._subscribed(), 5):
                rig.problems.append(f"the subscription exists after unsubscribe(): {self._subscribed()}")
        else:
            with contextlib.suppress(official.PulsarException):  # a failed close has left it open
                rig.consumer.close()
            self._check_another()

    def _check_another(self) -> None:
        rig, record = self.rig, self.rig.record
        with rig.lock:
            record.received.clear()
        client = rig.connect()
        try:
            consumer = self._subscribe(client)
            rig.drain(
                consumer, self._receive_seconds, lambda: len(self._missing()) <= record.skipped and not self._backlog()
            )
            missing = self._missing()
            if len(missing) > record.skipped:
                rig.problems.append(f"not acknowledged, and not received by another consumer: {sorted(missing)}")
            elif backlog := self._backlog():
                rig.problems.append(f"another consumer acknowledged everything, and there is {backlog}")
        finally:
            client.close()

    def _subscribe(self, client: Any) -> Any:
        deadline = time.monotonic() + 10
        while True:
            try:
                return self.rig.subscribe(client)
            except official.ConsumerBusy:  # the broker has not yet detected the end of the other
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def _missing(self) -> set[int]:
        """Return messages that were neither acknowledged nor held, and may not have been skipped."""
        rig, record = self.rig, self.rig.record
        with rig.lock:
            held = {int(message.data().split(b".", 1)[0]) for message in rig.held} & record.received.keys()
            return set(range(rig.sent)) - record.acknowledged.keys() - held - record.may_be_skipped

    def _not_again(self) -> set[int]:
        """Return messages that were not received after a move of the cursor, and have to be."""
        both = [name for name in self.case.operations if name in MOVING]
        record = self.rig.record
        if len(both) != 1 or len(record.moves) != 1:
            return set()
        ((since, come),) = record.moves
        with self.rig.lock:
            again = {number for number, times in record.received.items() if times[-1] >= since}
            again |= {number for number, at in record.acknowledged.items() if at >= since}
            return come - again - (record.may_be_skipped if "acknowledge cumulative" in self.case.operations else set())

    def _backlog(self) -> str:
        """Return the backlog as text; empty for none."""
        found = []
        for topic in self.rig.topics:
            try:
                one = self.rig.admin.stats(topic, precise_backlog=True).subscriptions[SUBSCRIPTION]
            except (AdminError, KeyError) as error:
                found.append(f"{type(error).__name__}: {error}"[:100])
            else:
                if one.backlog_entries:
                    found.append(f"a backlog of {one.backlog_entries} on {topic.rsplit('-', 1)[-1]}")
        return ", ".join(found)

    def _subscribed(self) -> list[str]:
        return [topic for topic in self.rig.topics if SUBSCRIPTION in self.rig.admin.stats(topic).subscriptions]

    @staticmethod
    def _eventually(condition: Callable[[], bool], seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True


def run_case(
    case: Case, urls: tuple[str, str], kill: Callable[[], None], ready: Callable[[], None] = lambda: None
) -> list[str]:
    """Carry out one run; return its problems.

    Args:
        case: the case.
        urls: the service URL and the admin URL of the broker.
        kill: kills the broker and restarts it.
        ready: is called when everything is open, and may wait for other runs.
    """
    return _Run(case, urls, kill, ready).run()
