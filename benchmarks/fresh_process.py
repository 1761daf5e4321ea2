"""Function calls in fresh processes, each with new memory, threads and caches."""

from __future__ import annotations

import gc
import multiprocessing
import traceback
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection
    from multiprocessing.synchronize import Barrier

__all__ = ["Call", "CallError", "barrier"]

_CONTEXT: Final = multiprocessing.get_context("forkserver")
# Imported once, where nothing runs yet: a process forked from there starts within milliseconds.
_CONTEXT.set_forkserver_preload(["pulsar", "pulsar_ext", "pulsar_ext.asyncio"])
_END_SECONDS: Final = 10


class CallError(Exception):
    """The function raised, its process died, or it did not return in time; the text names the cause."""


class Call:
    """Call of a function in a separate process, started immediately.

    Args:
        function: a module-level function.
        *arguments: values that can be pickled.
    """

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self._answers, sending = _CONTEXT.Pipe(duplex=False)
        self._process = _CONTEXT.Process(target=_answer, args=(sending, function, arguments), daemon=True)
        self._process.start()
        sending.close()  # so that the end of the process also ends the wait for its result

    def result(self, timeout_seconds: float) -> Any:
        """Wait for the function's result, and end its process.

        Raises:
            CallError: the function raised, its process died, or the timeout expired.
        """
        try:
            if not self._answers.poll(timeout_seconds):
                raise CallError(f"did not end in {timeout_seconds:g} s")
            succeeded, answer = self._answers.recv()
        except EOFError:
            raise CallError("its process died") from None
        finally:
            self.end()
        if not succeeded:
            raise CallError(answer)
        return answer

    def end(self) -> None:
        """End the process in any state."""
        self._process.join(_END_SECONDS if self._answers.poll(0) else 0)
        if self._process.is_alive():
            self._process.kill()
        self._process.join()
        self._answers.close()


def barrier(parties: int) -> Barrier:
    """Return a barrier at which `parties` calls wait for each other."""
    return _CONTEXT.Barrier(parties)


def _answer(sending: Connection, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    gc.collect()
    gc.freeze()  # otherwise a collection traverses all imported objects, 40 ms of the measured time
    try:
        answer = True, function(*arguments)
    except Exception as error:  # noqa: BLE001  # any error is reported to the other process
        answer = False, traceback.format_exception_only(error)[-1].strip()
    sending.send(answer)
