"""The operations of a pair: each runs once, and records what it may do to the messages."""

from __future__ import annotations

import os
import random
import time
from typing import TYPE_CHECKING, Any, Final

from acks_common import SUBSCRIPTION, label_of

import pulsar_ext
from pulsar_ext import ForkedClientError, MessageId

if TYPE_CHECKING:
    from collections.abc import Callable

    from pairs_rig import Rig

__all__ = ["BREAKING", "ENDING", "KILL", "MOVING", "OPERATIONS"]

KILL: Final = "kill"
_SILENT_SECONDS: Final = 0.5
_CHILD_SECONDS: Final = 5
_FEW: Final = 3


def _receive(rig: Rig) -> None:
    dice = random.Random(rig.case.seed + 3)
    for _ in range(_FEW):
        for message in rig.receive(rig.consumer, dice):
            with rig.lock:
                rig.held.append(message)


def _acknowledge(rig: Rig) -> None:
    for _ in range(_FEW):
        message = rig.take_held()
        if message is not None:
            rig.acknowledge(rig.consumer, message)


def _acknowledge_id(rig: Rig) -> None:
    message = rig.take_held()
    if message is not None:
        number = label_of(message.data())
        now = time.monotonic()
        message_id = MessageId.parse(rig.id_of(number).to_text())
        message_id.topic_name(rig.topics[rig.topic_of(number)])
        rig.consumer.acknowledge(message_id)
        with rig.lock:
            rig.record.acknowledged[number] = now


def _acknowledge_cumulative(rig: Rig) -> None:
    message = rig.take_held()
    if message is None:
        return
    if rig.case.type in ("Shared", "Key_Shared"):
        rig.acknowledge(rig.consumer, message)
        return
    number = label_of(message.data())
    with rig.lock:
        rig.record.may_be_skipped |= {one for one in range(number) if rig.topic_of(one) == rig.topic_of(number)}
    rig.consumer.acknowledge_cumulative(message)
    with rig.lock:
        rig.record.acknowledged[number] = time.monotonic()


def _negative_acknowledge(rig: Rig) -> None:
    message = rig.take_held()
    if message is not None:
        rig.consumer.negative_acknowledge(message)


def _seek_id(rig: Rig) -> None:
    with rig.lock:
        number = min(rig.record.received, default=0) if len(rig.topics) > 1 else rig.dice.randrange(rig.half)
        rig.record.may_be_skipped |= {one for one in range(number) if rig.topic_of(one) == rig.topic_of(number)}
    if len(rig.topics) > 1 and number not in rig.record.received:
        return
    same = {one for one in range(number, rig.sent) if rig.topic_of(one) == rig.topic_of(number)}
    rig.move_to(same, lambda: rig.consumer.seek(rig.id_of(number)))


def _seek_time(rig: Rig) -> None:
    with rig.lock:
        rig.record.may_be_skipped |= set(range(rig.half))
    rig.move_to(set(range(rig.half, rig.sent)), lambda: rig.consumer.seek(rig.half_millis))


def _seek_earliest(rig: Rig) -> None:
    rig.move_to(set(range(rig.sent)), lambda: rig.consumer.seek(MessageId.earliest))


def _redeliver(rig: Rig) -> None:
    rig.consumer.redeliver_unacknowledged_messages()


def _unsubscribe(rig: Rig) -> None:
    rig.ended.set()
    rig.consumer.unsubscribe()


def _flush(rig: Rig) -> None:
    rig.consumer.flush_acks()


def _skip(rig: Rig) -> None:
    with rig.lock:
        rig.record.skipped += _FEW * 5
    rig.client.skip_messages(
        rig.topics[0], SUBSCRIPTION, _FEW, unit="entry" if rig.case.shape != "chunked" else "message"
    )


def _reset(rig: Rig) -> None:
    for topic in rig.topics:
        rig.admin.reset_cursor(topic, SUBSCRIPTION, "earliest")


def _partitions(rig: Rig) -> None:
    if rig.case.shape == "partitioned":
        rig.admin.update_partitions(rig.base, 3)
    elif rig.case.shape == "pattern":
        rig.admin.create_topic(f"{rig.base}-new-{rig.dice.randrange(10**6)}")
    else:
        rig.admin.stats(rig.topics[0])


def _unload(rig: Rig) -> None:
    for topic in rig.topics:
        rig.admin.unload(topic)


def _cut(rig: Rig) -> None:
    rig.proxy.cut()


def _silent(rig: Rig) -> None:
    rig.proxy.pause()
    time.sleep(_SILENT_SECONDS)
    rig.proxy.resume()


def _fork(rig: Rig) -> None:
    pid = os.fork()
    if not pid:
        status = 1
        try:
            import signal  # noqa: PLC0415

            signal.alarm(_CHILD_SECONDS)  # a child that hangs ends
            rig.consumer.receive_many(5, 100)
        except ForkedClientError:
            status = 0
        except pulsar_ext.AlreadyClosed:
            status = 0 if rig.ended.is_set() else 2
        except BaseException:  # noqa: BLE001
            status = 3
        os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status:
        rig.problems.append(f"the forked child ended with {status} instead of ForkedClientError")


def _close(rig: Rig) -> None:
    rig.ended.set()
    rig.consumer.close()


def _close_client(rig: Rig) -> None:
    rig.ended.set()
    rig.client.close()


def _shutdown(rig: Rig) -> None:
    rig.ended.set()
    rig.client.shutdown()


def _kill(_: Rig) -> None:
    raise NotImplementedError  # the program kills the broker for several runs at once


OPERATIONS: Final[dict[str, Callable[[Rig], Any]]] = {
    "receive": _receive,
    "acknowledge": _acknowledge,
    "acknowledge id": _acknowledge_id,
    "acknowledge cumulative": _acknowledge_cumulative,
    "nack": _negative_acknowledge,
    "seek id": _seek_id,
    "seek time": _seek_time,
    "seek earliest": _seek_earliest,
    "redeliver": _redeliver,
    "unsubscribe": _unsubscribe,
    "flush": _flush,
    "skip": _skip,
    "reset": _reset,
    "partitions": _partitions,
    "unload": _unload,
    "cut": _cut,
    "silent": _silent,
    "fork": _fork,
    "close": _close,
    "close client": _close_client,
    "shutdown": _shutdown,
    KILL: _kill,
}
MOVING: Final = ("seek id", "seek time", "seek earliest", "reset", "skip")
"""Operations that move the cursor."""
ENDING: Final = ("unsubscribe", "close", "close client", "shutdown")
"""Operations that close the consumer."""
BREAKING: Final = ("unload", "cut", "silent", "reset", "skip", "partitions", KILL)
"""Operations during which a call that needs the connection may raise."""
