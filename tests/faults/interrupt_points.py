"""The points of a call at which Python may run a signal handler, and a signal at exactly one of them.

CPython checks for signals after every call, at the beginning of every function and at every jump back, and nowhere
else. A dry run of a call records the instructions after which it checks, in all Python code of the call. Then the call
is repeated, and at one of these instructions a signal arrives, without a line of Python in between: the
interpreter runs its handler by itself at its next check. No timer is needed, and no impossible point is tried.
"""

from __future__ import annotations

import _thread
import dis
import signal
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType

__all__ = ["Interruption", "points_of"]

_OWN = str(Path(__file__).parent)
_DEPTH = 4
"""Number of callers that distinguish a point."""
_CHECKING = frozenset({"CALL", "CALL_FUNCTION_EX", "CALL_KW"})


@cache
def _instructions(code: CodeType) -> frozenset[int]:
    """Return the offsets of a function's instructions; a call in progress is at the end of its own."""
    return frozenset(one.offset for one in dis.get_instructions(code))


@cache
def _checked_offsets(code: CodeType) -> frozenset[int]:
    """Return the offsets of a function's instructions after which Python checks for signals."""
    return frozenset(
        one.offset
        for one in dis.get_instructions(code)
        if one.opname in _CHECKING or ("JUMP_BACKWARD" in one.opname and "NO_INTERRUPT" not in one.opname)
    )


def _is_traced(code: CodeType) -> bool:
    return not code.co_filename.startswith((_OWN, "<frozen"))


Point = tuple[tuple[Any, ...], int]
"""An instruction after which Python checks, followed by its callers', and the number of its pass."""


def _watch_instructions(frame: FrameType, watch: Callable[[FrameType, str, Any], Any]) -> None:
    """Call a function at every instruction of a frame; from CPython 3.13 on only in this order."""
    frame.f_trace_lines = False
    frame.f_trace = watch
    frame.f_trace_opcodes = True


def _settrace(watch: Callable[[FrameType, str, Any], Any]) -> None:
    """Begin to trace; CPython 3.12 reports no instructions unless a frame has requested them before."""
    sys._getframe().f_trace_opcodes = True  # public in all but name
    sys.settrace(watch)


def _path(frame: FrameType) -> tuple[Any, ...]:
    """Return the current instruction of a function, and those of its callers."""
    path = []
    caller: FrameType | None = frame
    while caller is not None and len(path) < _DEPTH and _is_traced(caller.f_code):
        path.append((caller.f_code, caller.f_lasti))
        caller = caller.f_back
    return tuple(path)


class _Count:
    """Records the points of a call, in order."""

    def __init__(self) -> None:
        self._passed: Counter[tuple[Any, ...]] = Counter()

    def points(self) -> list[Point]:
        """Return the points; of a repeated one, the first, second and last pass."""
        return [(path, time) for path, count in self._passed.items() for time in sorted({1, min(2, count), count})]

    def on_call(self, frame: FrameType, _: str, __: Any) -> Any:
        """Trace a function; Python checked before its beginning, also if no call led to it, as for a property."""
        if not _is_traced(frame.f_code):
            return None
        caller = frame.f_back
        if caller is not None and _is_traced(caller.f_code):
            code, at = caller.f_code, caller.f_lasti
            if at in _instructions(code) and at not in _checked_offsets(code):
                self._passed[_path(caller)] += 1
        _watch_instructions(frame, self.on_instruction)
        return self.on_instruction

    def on_instruction(self, frame: FrameType, event: str, _: Any) -> Any:
        """Record an instruction after which Python checks."""
        if event == "opcode" and frame.f_lasti in _checked_offsets(frame.f_code):
            self._passed[_path(frame)] += 1
        return self.on_instruction


def points_of(call: Callable[[], Any]) -> tuple[list[Point], Any]:
    """Make a call; return the points at which a signal can arrive, and the result."""
    counter = _Count()
    _settrace(counter.on_call)
    try:
        came = call()
    finally:
        sys.settrace(None)
    return counter.points(), came


class Interruption:
    """A call, and a signal that arrives at one point of it.

    Args:
        point: the point.
    """

    def __init__(self, point: Point) -> None:
        self._path, self._left = point
        self._target, self._at = self._path[0]
        self._code: CodeType | None = None
        self._line: int | None = 0
        self._watch = self._on_call  # kept: the interpreter uses it after its release
        # One step of it ends the tracing and sends the signal, all of it in C.
        self._signal = zip(map(sys.settrace, (None,)), map(_thread.interrupt_main, (signal.SIGINT,)), strict=False)
        self.came: Any = None
        self.error: BaseException | None = None

    @property
    def arrived(self) -> bool:
        """True if the signal arrived: a call may have fewer points than the one before."""
        return self._code is not None

    @property
    def place(self) -> str:
        """File, line and function where the signal arrived."""
        if self._code is None:
            return "nowhere"
        return f"{'/'.join(Path(self._code.co_filename).parts[-2:])}:{self._line} {self._code.co_name}"

    def make(self, call: Callable[[], Any]) -> None:
        """Make the call, a Python function without arguments; `came` and `error` have the outcome."""
        try:
            _settrace(self._watch)
            self.came = call()  # stored without a check for signals in between
            sys.settrace(None)
        except BaseException as error:  # noqa: BLE001  # checked later
            sys.settrace(None)
            self.error = error.with_traceback(None)

    def _on_call(self, frame: FrameType, _: str, __: Any) -> Any:
        if not _is_traced(frame.f_code):
            return None
        _watch_instructions(frame, self._on_instruction)
        return self._on_instruction

    def _on_instruction(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "opcode" and frame.f_lasti == self._at and frame.f_code is self._target:
            self._left -= _path(frame) == self._path
            if not self._left:
                self._code, self._line = frame.f_code, frame.f_lineno
                for _here in self._signal:
                    return None  # no call from here on: Python would check for signals in this function
        return self._on_instruction
