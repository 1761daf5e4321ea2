"""Clients, producers and consumers that are repeatedly opened and closed: leaks show as growth."""

from __future__ import annotations

import contextlib
import itertools
import time
from typing import TYPE_CHECKING, Final

import pulsar as official
from soak_receiving import Consumer, Taking
from soak_sending import Writer, Writing

if TYPE_CHECKING:
    from soak_rig import Rig

__all__ = ["start_churn"]

_PAUSE_SECONDS: Final = 0.5
_LIVES: Final = (0.2, 0.6)
_BATCHED: Final = {"batching_enabled": True, "batching_max_messages": 10}
_WRITINGS: Final = {
    "churn-plain": Writing(40, lives=_LIVES),
    "churn-once": Writing(40, _BATCHED, lives=_LIVES),
    "churn-chunks": Writing(5, {"chunking_enabled": True}, bytes=120_000, lives=_LIVES),
    "churn-batched": Writing(80, _BATCHED, many=True, lives=_LIVES),
}
_TAKINGS: Final = (
    Taking(
        "churn", official.ConsumerType.Exclusive, by="receive_many", acknowledge_by="acknowledge_many", lives=_LIVES
    ),
    Taking("churn", official.ConsumerType.Shared, nack=0.02, lives=_LIVES),
    Taking("churn", official.ConsumerType.Failover, options={"ack_group_time_ms": 0}, lives=_LIVES),
    Taking("churn", official.ConsumerType.KeyShared, acknowledge_by="ack_scope", by="batch_receive", lives=_LIVES),
    Taking("churn", official.ConsumerType.Shared, options={"unacked_messages_timeout_ms": 10_000}, lives=_LIVES),
    Taking("churn", official.ConsumerType.Exclusive, options={"receiver_queue_size": 0}, lives=_LIVES),
)


def start_churn(rig: Rig) -> None:
    """Open a client, send, receive, read and close, a different way each time, until the run is over."""
    for name in _WRITINGS:
        rig.flow(name, once=name == "churn-once").subscription("churn")
    turns = itertools.count()

    def session() -> None:
        turn = next(turns)
        name = list(_WRITINGS)[turn % len(_WRITINGS)]
        flow, taking = rig.flows[name], _TAKINGS[turn % len(_TAKINGS)]
        if name in ("churn-batched", "churn-once") and "receiver_queue_size" in taking.options:
            taking = _TAKINGS[0]  # a queue of 0 is replaced when a batch arrives
        client = rig.client()
        try:
            Writer(rig, client, flow, _WRITINGS[name]).session()
            Consumer(rig, client, flow.subscription("churn"), taking, turn).session()
            if turn % 3 == 0:
                _read_a_little(client, flow.topic)
        finally:
            client.close()
            rig.did["clients closed"] += 1
        time.sleep(_PAUSE_SECONDS)

    rig.keep_on("churn", session, rig.over)


def _read_a_little(client: official.Client, topic: str) -> None:
    """Read, and leave the reader open for the client's close."""
    reader = client.create_reader(topic, official.MessageId.earliest)
    with contextlib.suppress(official.Timeout):
        for _ in range(10):
            reader.read_next(100)
