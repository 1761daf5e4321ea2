"""Interrupts one kind of call at its points, in a process of its own; reports are lines of JSON."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import faulthandler
import json
import signal
import sys
import time
import traceback
from typing import TYPE_CHECKING, Any

import pulsar
from interrupt_health import Elsewhere, Watchdog, held_locks, locks_of_library, silent_schedulers
from interrupt_points import Interruption, points_of
from interrupt_rig import World

import pulsar_ext

if TYPE_CHECKING:
    from interrupt_rig import Rig

__all__ = ["main"]

_CHECK_EVERY = 40
_SLOW_SECONDS = 4.0
_TRIES = 2
_ALLOWED = {
    "raise": (KeyboardInterrupt, asyncio.CancelledError, pulsar.Interrupted, SystemError),
    "send": (),
    "close": (pulsar_ext.PulsarException,),
    "close client": (pulsar_ext.PulsarException,),
}


class Run:
    """The points of one method, with one kind of handler."""

    def __init__(self, world: World, rig: Rig, kind: str, watchdog: Watchdog) -> None:
        self._rig, self._kind, self._watchdog = rig, kind, watchdog
        self._elsewhere = Elsewhere()
        self._world = world
        self._locks: list[Any] = []
        self.findings: list[dict[str, Any]] = []

    def open(self) -> None:
        """Open the handles, and make the call several times to determine its points."""
        rig = self._rig
        rig.open()
        self.points: list[Any] = []
        for first in (True, False, False) if rig.cost == 1 else (True, False):
            self._watchdog.beat()
            rig.begin()
            found, came = points_of(rig.call)
            self.points = [] if first else max(self.points, found, key=len)  # the first call imports modules
            for problem in rig.ended(came, None):
                raise RuntimeError(f"without any signal: {problem}")
        self._locks = locks_of_library()

    def try_point(self, number: int) -> bool:
        """Send a signal at a point; return True if it arrived: calls do not always take the same path."""
        return any(self._try(number) for _ in range(_TRIES))

    def _try(self, number: int) -> bool:
        rig, began = self._rig, time.monotonic()
        self._watchdog.beat(point=number, step="begin")
        rig.begin()
        attempt = Interruption(self.points[number])
        handled: list[str] = []
        self._handled = False
        signal.signal(signal.SIGINT, lambda *_: self._handle(handled))
        self._watchdog.beat(point=number, step="call")
        attempt.make(rig.call)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        problems = list(handled)
        error = attempt.error
        self._watchdog.beat(point=number, step="after the call", place=attempt.place)
        if error is not None and not isinstance(error, _ALLOWED[self._kind]):
            problems.append(f"{type(error).__name__}: {error} was raised by the call")
        try:
            problems += rig.ended(attempt.came, error)
        except Exception as failure:  # noqa: BLE001  # a finding
            problems.append(f"the next call raised {type(failure).__name__}: {failure}{_line(failure)}")
        problems += self._health()
        took = time.monotonic() - began
        if took > _SLOW_SECONDS:
            problems.append(f"it took {took:.1f} s")
        self._found(number, attempt.place, problems)
        return attempt.arrived

    def check_later(self, numbers: str) -> None:
        """Check problems that show only later."""
        self._watchdog.beat(point=numbers, step="look")
        problems: list[str] = []
        try:
            problems += self._rig.check_later()
            problems += silent_schedulers(self._rig.client)
        except Exception as failure:  # noqa: BLE001  # a finding
            problems.append(f"raised {type(failure).__name__}: {failure}{_line(failure)}")
        self._found(numbers, "", problems)
        self._locks = locks_of_library()

    def _health(self) -> list[str]:
        problem, held = self._elsewhere.call("taking locks", lambda: held_locks(self._locks), 20)
        return [problem] if problem else [f"{name} is held for good" for name in held]

    def _handle(self, handled: list[str]) -> None:
        if self._handled:  # the C++ client makes a signal that ends a wait arrive twice
            return
        self._handled = True
        if self._kind == "raise":
            if self._rig.awaits:
                self._rig.cancel()
                return
            raise KeyboardInterrupt
        act = {"send": self._rig.send, "close": self._rig.close_handle, "close client": self._rig.close_client}[
            self._kind
        ]
        try:
            act()
        except pulsar_ext.InvalidUse:
            pass  # expected: the library raises
        except Exception as error:  # noqa: BLE001  # a finding
            handled.append(f"in the handler: {type(error).__name__}: {error}{_line(error)}")

    def _found(self, number: Any, place: str, problems: list[str]) -> None:
        for problem in problems:
            self.findings.append({"point": number, "place": place, "problem": problem})
            print(json.dumps({"finding": self.findings[-1]}), flush=True)
        if problems:
            with contextlib.suppress(Exception):
                self._rig.end()
            self._rig = type(self._rig)(self._world, self._rig.variant)
            self._rig.open()
            self._locks = locks_of_library()


def _line(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    ours = [one for one in frames if "pulsar_ext" in one.filename]
    return "".join(f" < {'/'.join(one.filename.split('/')[-2:])}:{one.lineno}" for one in reversed(ours[-4:]))


def run(world: World, rig: Rig, kind: str, watchdog: Watchdog, begin: int, most: int, every: int) -> None:
    """Try the points of one method."""
    one = Run(world, rig, kind, watchdog)
    one.open()
    count = len(one.points)
    step = max(every, -(-count // most) if most else 1)
    print(json.dumps({"points": count, "step": step}), flush=True)
    tried = 0
    for number in range(begin, count, step):
        arrived = one.try_point(number)
        tried += arrived
        print(json.dumps({"tried": number, "arrived": arrived}), flush=True)
        if tried % _CHECK_EVERY == 0:
            one.check_later(f"{max(number - (_CHECK_EVERY - 1) * step, 0)} to {number}")
    one.check_later(f"up to {count - 1}")
    watchdog.beat(step="end")
    with contextlib.suppress(pulsar_ext.AlreadyClosed):
        one._rig.end()


def main() -> None:
    """Run the requested jobs."""
    from interrupt_methods import CASES  # noqa: PLC0415  # it needs the path above

    parser = argparse.ArgumentParser()
    parser.add_argument("service_url")
    parser.add_argument("admin_url")
    parser.add_argument("jobs", help="as JSON: name, kind, begin, most, every of each")
    arguments = parser.parse_args()
    faulthandler.enable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    watchdog = Watchdog()
    world = World(arguments.service_url, arguments.admin_url)
    for name, kind, begin, most, every in json.loads(arguments.jobs):
        watchdog.beat(name=name, kind=kind, step="open")
        print(json.dumps({"began": [name, kind]}), flush=True)
        try:
            case = CASES[name]
            run(world, case.rig(world, case.variant), kind, watchdog, begin, most, every)
        except Exception as error:  # noqa: BLE001  # reported, and the next job follows
            traceback.print_exc()
            print(json.dumps({"failed": f"{type(error).__name__}: {error}{_line(error)}"}), flush=True)
    print(json.dumps({"over": True}), flush=True)
    watchdog.beat(step="exit")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
