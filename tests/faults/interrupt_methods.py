"""Every public method with the cases that interrupt it, or the reason why it has none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import interrupt_acking as acking
import interrupt_awaited as awaited
import interrupt_moving as moving
import interrupt_opening as opening
import interrupt_processing as processing
import interrupt_producing as producing
import interrupt_receiving as receiving

import pulsar_ext
import pulsar_ext.asyncio
from pulsar_ext.key_shared.reader_group import GroupReader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from interrupt_rig import Rig

__all__ = ["CASES", "Case", "uncovered"]


@dataclass(frozen=True)
class Case:
    """A way to call a method.

    Args:
        method: its class and its name.
        variant: the way, as the rig knows it.
        rig: makes the call, and checks afterwards.
    """

    method: str
    variant: str
    rig: type[Rig]

    @property
    def name(self) -> str:
        """Name of the case."""
        return f"{self.method}: {self.variant}" if self.variant else self.method


def _cases(rig: type[Rig], method: str, *variants: str) -> Iterator[Case]:
    for variant in variants or ("",):
        yield Case(method, variant, rig)


def _named(rig: type[Rig], of: str, *names: str, **variants: str) -> Iterator[Case]:
    for name in names:
        yield Case(f"{of}.{name}", name, rig)
    for name, variant in variants.items():
        yield Case(f"{of}.{name}", variant, rig)


def _receiving() -> Iterator[Case]:
    one, many = receiving.Receiving, receiving.ManyReceiving
    yield from _cases(
        one, "Consumer.receive", "", "ready", "not acknowledged", "fetched ahead", "queue of 0", "screened"
    )
    yield from _cases(many, "Consumer.receive_many", "", "fetched ahead", "screened")
    yield from _cases(receiving.BatchReceiving, "Consumer.batch_receive", "", "own policy")
    yield from _cases(receiving.Looping, "Consumer.__iter__", "", "fetched ahead")
    yield from _cases(receiving.LoopingOn, "Consumer.__iter__", "continued")
    yield from _named(
        receiving.Asking,
        "Consumer",
        "get_last_message_id",
        "topic",
        "subscription_name",
        "consumer_name",
        "is_connected",
    )
    yield from _named(receiving.Pausing, "Consumer", "pause", "resume")
    yield from _cases(processing.Processing, "Consumer.process")
    yield from _cases(receiving.Reading, "Reader.read_next", "", "queue of 0")
    yield from _named(receiving.AskingReader, "Reader", "has_message_available", "topic", "is_connected")
    yield from _named(receiving.ClosingReader, "Reader", "close", __exit__="with")
    yield from _cases(receiving.ReadingOnRanges, "RangeReader.read_next", "", "timeout")
    yield from _named(receiving.ReadingOnRanges, "RangeReader", "has_message_available", __iter__="loop")
    yield from _cases(receiving.ReadingOfTopics, "TopicsReader.read_next")
    yield from _cases(one, "RangeConsumer.receive", "ranges")
    yield from _cases(many, "RangeConsumer.receive_many", "ranges")
    yield from _cases(receiving.BatchReceiving, "RangeConsumer.batch_receive", "ranges")
    yield from _cases(receiving.ReadingInGroup, "GroupReader.read_next")
    yield from _cases(receiving.ReadingInGroup, "RangeReaderGroup.close", "close")


def _acking() -> Iterator[Case]:
    yield from _cases(
        acking.Acknowledging, "Consumer.acknowledge", "", "again", "a full inbox", "each at once", "in runs", "by id"
    )
    yield from _cases(acking.AcknowledgingMany, "Consumer.acknowledge_many", "", "each at once")
    yield from _cases(acking.AcknowledgingUpTo, "Consumer.acknowledge_cumulative", "", "by id")
    yield from _cases(acking.Flushing, "Consumer.flush_acks", "", "confirmed")
    yield from _cases(acking.Flushing, "Consumer.pending_acks", "pending")
    yield from _cases(acking.Scoping, "Consumer.ack_scope", "", "explicit")
    yield from _cases(acking.Nacking, "Consumer.negative_acknowledge")
    yield from _cases(acking.Reconsuming, "Consumer.reconsume_later")
    yield from _cases(moving.Seeking, "Consumer.seek", "earliest", "id")
    yield from _cases(moving.Seeking, "Reader.seek", "reader")
    yield from _cases(moving.Redelivering, "Consumer.redeliver_unacknowledged_messages")
    yield from _cases(moving.Unsubscribing, "Consumer.unsubscribe")
    yield from _cases(moving.Closing, "Consumer.close")
    yield from _cases(moving.Closing, "Consumer.__exit__", "with")


def _producing() -> Iterator[Case]:
    rig, every = producing.Sending, tuple(producing.OPTIONS)
    for kind in every:
        yield from _cases(rig, "Producer.send_async", f"{kind}/send_async")
        yield from _cases(rig, "Producer.send", f"{kind}/send")
        yield from _cases(rig, "Producer.send_many", f"{kind}/send_many")
        yield from _cases(rig, "Producer.flush", f"{kind}/flush")
        yield from _cases(producing.ClosingProducer, "Producer.close", f"{kind}/close")
    for kind in ("direct", "batched", "partitioned"):
        yield from _cases(rig, "Producer.send_async", f"{kind}/send_async with options")
    for kind in ("chunking", "deduplicated in chunks"):
        yield from _cases(rig, "Producer.send_async", f"{kind}/send_async big")
    for name in ("last_sequence_id", "last_sequence_id_published", "topic", "producer_name", "is_connected"):
        yield from _cases(rig, f"Producer.{name}", f"batched/{name}")
    yield from _cases(rig, "Producer.last_sequence_id_pushed", "deduplicated/last_sequence_id_pushed")
    yield from _cases(producing.ClosingProducer, "Producer.__exit__", "batched/with")


def _opening() -> Iterator[Case]:
    for variant in (
        "create_producer direct",
        "create_producer batched",
        "create_producer deduplicated",
        "subscribe",
        "subscribe shared",
        "create_reader",
        "create_reader ranges",
        "create_table_view",
        "create_reader_group",
        "read",
        "requester",
        "replier",
        "new_consumer",
        "new_reader",
        "get_topic_partitions",
        "get_service_info",
        "resolve_message_id",
        "message_id_after",
        "acknowledge",
        "skip_messages",
        "skip_messages really",
        "diagnose",
        "look",
    ):
        yield from _cases(opening.Opening, f"Client.{variant.split()[0]}", variant)
    yield from _cases(opening.Ending, "Client.close")
    yield from _named(opening.Ending, "Client", "shutdown", __exit__="with")
    yield from _named(
        opening.TableViewing, "TableView", "get", "for_each", "for_each_and_listen", "close", __len__="len"
    )


def _awaited() -> Iterator[Case]:
    yield from _named(
        awaited.Awaited,
        "asyncio.Consumer",
        *("receive", "receive_many", "batch_receive", "acknowledge", "acknowledge_many", "acknowledge_cumulative"),
        *("negative_acknowledge", "flush_acks", "pending_acks", "redeliver_unacknowledged_messages", "seek"),
        *("unsubscribe", "close", "get_last_message_id"),
        __anext__="loop",
        ack_scope="scope",
        __aexit__="with",
    )
    yield from _named(
        awaited.Awaited,
        "asyncio.Reader",
        *("read_next", "read_many", "has_message_available"),
        seek="seek of reader",
        close="close of reader",
        __anext__="loop of reader",
        __aexit__="with reader",
    )
    yield from _named(processing.AwaitedProcessing, "asyncio.Consumer", "process")
    yield from _named(
        awaited.AwaitedSending,
        "asyncio.Producer",
        *("send", "send_many", "flush", "close", "last_sequence_id_published"),
        __aexit__="with producer",
    )
    yield from _named(
        awaited.AwaitedOpening,
        "asyncio.Client",
        *("create_producer", "subscribe", "create_reader", "create_table_view", "create_reader_group", "new_reader"),
        *("new_consumer", "get_topic_partitions", "resolve_message_id", "message_id_after", "skip_messages", "close"),
        *("diagnose", "look", "read"),
        acknowledge="acknowledge by id",
        __aexit__="with client",
    )


CASES: Final = {one.name: one for part in (_receiving, _acking, _producing, _opening, _awaited) for one in part()}

_OWN: Final = "is internal to this library: no application calls it"
_HELD: Final = "returns what is in memory"
_LISTENS: Final = "belongs to listeners, which run on the C++ client's threads, where no signal arrives"
_INHERITED: Final = "is the base class's own, which is covered"
_THREAD: Final = "runs the blocking one, which is covered, on a thread, where no signal arrives"
_ENTERS: Final = "returns the object itself"
_ASKS: Final = "only asks the admin API for values that may change in between anyway"

_OF_CONSUMERS: Final = (
    *("__exit__", "__iter__", "ack_scope", "acknowledge", "acknowledge_cumulative", "acknowledge_many"),
    *("close", "consumer_name", "flush_acks", "get_last_message_id", "is_connected", "negative_acknowledge"),
    *("pending_acks", "reconsume_later", "reconsume_later_cumulative", "redeliver_unacknowledged_messages"),
    *("pause", "process", "resume", "seek", "send_dead_letter", "subscription_name", "topic", "unsubscribe"),
)
_EXCLUDED: Final[dict[str, dict[str, str]]] = {
    "": {
        **dict.fromkeys(
            (*("context", "fail_pending", "inner", "open", "sender"),),
            _OWN,
        ),
        **dict.fromkeys(
            ("fetched_ahead", "is_closed", "is_paused", "key_hash_ranges", "misrouted", "subscribed_to"),
            _HELD,
        ),
        "stop_processing": "only reports itself",
        **dict.fromkeys(("pause_message_listener", "resume_message_listener"), _LISTENS),
        **dict.fromkeys(("get_last_message_ids", "has_reached_end_of_topic", "message_id_by_index", "stats"), _ASKS),
        **dict.fromkeys(("__enter__", "__aenter__", "__aiter__"), _ENTERS),
    },
    "TopicsReader": {
        **dict.fromkeys(("topic", "topics"), _HELD),
        **dict.fromkeys(
            ("__exit__", "close", "has_message_available", "is_connected", "seek"),
            "calls that of each topic's reader, which is covered",
        ),
    },
    "TableView": {
        **dict.fromkeys(("__iter__", "items", "keys", "values"), _HELD),
        "listen": "is the second half of for_each_and_listen(), which is covered",
    },
    "RangeReader": dict.fromkeys(("__exit__", "close", "is_connected", "seek", "topic"), _INHERITED),
    "RangeConsumer": dict.fromkeys(_OF_CONSUMERS, _INHERITED),
    "GroupReader": {
        **dict.fromkeys((*_OF_CONSUMERS, "batch_receive", "receive", "receive_many"), _INHERITED),
        **dict.fromkeys(
            ("__iter__", "has_message_available"), "only checks what read_next() returns, which is covered"
        ),
        "seek": "is one transition, as a consumer's, which is covered",
    },
    "RangeReaderGroup": {"__exit__": "calls close()", "__iter__": _HELD},
    "asyncio.Client": {
        "get_service_info": _HELD,
        **dict.fromkeys(("replier", "requester"), _THREAD),
        "shutdown": "calls the blocking one, which is covered",
    },
    "Consumer": {
        "reconsume_later_cumulative": "is reconsume_later() and acknowledge_cumulative(), which are covered",
        "send_dead_letter": "is reconsume_later() with another topic",
    },
    "asyncio.Consumer": dict.fromkeys(("consumer_name", "is_connected", "subscription_name", "topic"), _HELD)
    | dict.fromkeys(("pause", "resume"), "calls the blocking one, which is covered")
    | dict.fromkeys(("reconsume_later", "reconsume_later_cumulative", "send_dead_letter"), _THREAD),
    "asyncio.Producer": dict.fromkeys(
        ("is_connected", "last_sequence_id", "last_sequence_id_pushed", "producer_name", "topic"), _HELD
    ),
    "asyncio.Reader": dict.fromkeys(("is_connected", "topic", "topics"), _HELD),
    "asyncio.GroupReader": dict.fromkeys(
        (
            *("__aexit__", "__anext__", "close", "has_message_available", "is_connected", "read_many", "read_next"),
            *("seek", "topic", "topics"),
        ),
        _THREAD,
    ),
    "asyncio.TableView": dict.fromkeys(("__aexit__", "close", "for_each_and_listen", "listen"), _THREAD)
    | dict.fromkeys(("__iter__", "for_each", "get", "items", "keys", "values"), _HELD),
    "asyncio.RangeReaderGroup": dict.fromkeys(("__aexit__", "__iter__", "close"), _THREAD),
}
"""By class, or for all classes: names without a case, and the reason."""

_CLASSES: Final[dict[str, type[Any]]] = {
    "Client": pulsar_ext.Client,
    "Consumer": pulsar_ext.Consumer,
    "Producer": pulsar_ext.Producer,
    "Reader": pulsar_ext.Reader,
    "TopicsReader": pulsar_ext.TopicsReader,
    "TableView": pulsar_ext.TableView,
    "RangeReader": pulsar_ext.RangeReader,
    "RangeConsumer": pulsar_ext.RangeConsumer,
    "GroupReader": GroupReader,
    "RangeReaderGroup": pulsar_ext.RangeReaderGroup,
    "asyncio.Client": pulsar_ext.asyncio.Client,
    "asyncio.Consumer": pulsar_ext.asyncio.Consumer,
    "asyncio.Producer": pulsar_ext.asyncio.Producer,
    "asyncio.Reader": pulsar_ext.asyncio.Reader,
    "asyncio.TableView": pulsar_ext.asyncio.TableView,
    "asyncio.GroupReader": pulsar_ext.asyncio.GroupReader,
    "asyncio.RangeReaderGroup": pulsar_ext.asyncio.RangeReaderGroup,
}
_SPECIAL: Final = frozenset(
    {"__iter__", "__enter__", "__exit__", "__aiter__", "__anext__", "__aenter__", "__aexit__", "__call__"}
)


def uncovered(classes: dict[str, type[Any]] = _CLASSES) -> list[str]:
    """Return the public methods that have neither a case nor a reason."""
    covered = {one.method for one in CASES.values()}
    return [
        f"{of}.{name}"
        for of, kind in classes.items()
        for name in dir(kind)
        if (name in _SPECIAL or not name.startswith("_"))
        and f"{of}.{name}" not in covered
        and name not in _EXCLUDED[""]
        and name not in _EXCLUDED.get(of, {})
    ]
