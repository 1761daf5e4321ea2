"""Asynchronous calls started on the C++ client's network thread, where no result can arrive before the call returns.

A C++ consumer of several topics or partitions iterates over its list of them to unsubscribe from each. If the last
broker's response arrives before the C++ client listens for it, the calling thread handles it during that iteration and
empties the list, which crashes the process. The network thread handles no responses while it runs the call. With
`io_threads` above 1 there are several network threads, and another one may handle a broker's response.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

import pulsar

from . import threads

if TYPE_CHECKING:
    from collections.abc import Callable

    from .answer import Answer

__all__ = ["call_on_network_thread"]

# Brokers create no topic for the name of a partition, and respond even without the permission for it.
_PARTITION: Final = "persistent://public/default/pulsar-ext-asks-partition-0"


def call_on_network_thread(client: Any, begin: Callable[[Answer], object], answer: Answer, begun: list[int]) -> None:
    """Start a call on the network thread, in the callback of a broker's response to a partition lookup.

    The lookup runs on its own thread, where no signal handler can interrupt a callback.

    Args:
        client: the C++ client.
        begin: starts the call.
        answer: receives the result of the call, or its exception.
        begun: gets an item at the start of the call; a Ctrl-C cannot separate the two.
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
            except Exception as error:  # noqa: BLE001  # raised where the result is awaited
                answer(error)

        try:
            while overtook:
                overtook = False
                client.get_topic_partitions_async(_PARTITION, on_outcome)
        except Exception as error:  # noqa: BLE001  # raised where the result is awaited
            answer(error)

    try:
        # Not `Thread.start()`: a Ctrl-C during it may leave a lock held that the new thread needs before it runs.
        begun.extend(map(threads.start_in_c, (run,), ((),)))
    except RuntimeError:  # the interpreter is shutting down and starts no more threads
        begun.append(0)
        run()
