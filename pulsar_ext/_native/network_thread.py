"""Beginning an asynchronous call on the C++ client's own network thread, where its answer cannot overtake it.

A C++ consumer of several topics or partitions unsubscribes from each while it walks over its list of them. Where the
last broker's answer is there before the C++ client begins to listen for it, the answer is taken on the asking thread,
in the midst of that walk, and empties the list: the process ends. The thread that takes answers from the network takes
none while it asks. With `io_threads` above 1 there are several, and brokers whose answers another one takes.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

import pulsar

from . import threads

if TYPE_CHECKING:
    from collections.abc import Callable

    from .answer import Answer

__all__ = ["begin_on_network_thread"]

# Brokers make no topic of the name of a partition, and answer even where it may not be asked for.
_PARTITION: Final = "persistent://public/default/pulsar-ext-asks-partition-0"


def begin_on_network_thread(client: Any, begin: Callable[[Answer], object], answer: Answer, begun: list[int]) -> None:
    """Have a call begin, once a broker has answered a question before it.

    The question is asked on a thread of its own, where no signal's handler can interrupt a callback.

    Args:
        client: the C++ client.
        begin: begins the call.
        answer: what the call is to be answered with, or what it raised.
        begun: gets an item together with the beginning, which no Ctrl-C parts from it.
    """

    def run() -> None:
        asking, overtook = threading.get_ident(), True

        def on_outcome(result: Any, _: Any) -> None:
            nonlocal overtook
            if threading.get_ident() == asking and result == pulsar.Result.Ok:
                overtook = True
                return
            try:
                begin(answer)
            except Exception as error:  # noqa: BLE001  # raised where the answer is waited for
                answer(error)

        try:
            while overtook:
                overtook = False
                client.get_topic_partitions_async(_PARTITION, on_outcome)
        except Exception as error:  # noqa: BLE001  # likewise
            answer(error)

    try:
        # Not `Thread.start()`: a Ctrl-C amid it may leave the lock held that the new thread takes before it runs.
        begun.extend(map(threads.start_in_c, (run,), ((),)))
    except RuntimeError:  # the interpreter is ending and starts no threads any more
        begun.append(0)
        run()
