"""Opening of readers and table views with the official arguments."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable
from functools import partial
from operator import call

import pulsar

from pulsar_ext._native.handles import listener_reader
from pulsar_ext._native.messages import inner_message_of
from pulsar_ext._native.signatures import Arguments, named_arguments
from pulsar_ext._runtime.callbacks import guard_listener, weak_listener
from pulsar_ext._runtime.context import ClientContext
from pulsar_ext.chunks.leftovers import ends_in_incomplete_message
from pulsar_ext.errors import AdminError, InvalidUse
from pulsar_ext.ids.message_id import MessageId
from pulsar_ext.intercept import ReaderChain, intercept_reader, register_chain
from pulsar_ext.message import Message, at_cluster, message_class
from pulsar_ext.reader import Reader
from pulsar_ext.receive.compacted import CompactionFilter
from pulsar_ext.receive.native import ReaderReopener
from pulsar_ext.receive.undecryptable import Flow, raise_on_encrypted_chunks
from pulsar_ext.schema.auto_consume import AutoConsumeSchema
from pulsar_ext.schema.key_value import KeyValueSchema
from pulsar_ext.table_view import End, TableView


def open_reader(
    context: ClientContext,
    create: Callable[..., pulsar.Reader],
    named: Arguments,
    opened: list[pulsar.Reader],
    make: Callable[..., Reader] = Reader._assemble_,
    chain: ReaderChain | None = None,
    *,
    several_topics: bool = False,
    skips_removed: bool = True,
    name: str | None = None,
) -> None:
    """Open a reader; see `open_consumer()`. Its permits are monitored if its `name` on the broker is passed."""
    raise_on_encrypted_chunks(context, named)
    topic, listener = named["topic"], named["reader_listener"]
    compaction = CompactionFilter(context.admin_api) if named["is_read_compacted"] and skips_removed else None
    if isinstance(topic, str):
        named["start_message_id"] = context.resolver.start_of(topic, named["start_message_id"]).inner
    cluster = context.cluster.number()
    messages = at_cluster(message_class(named["schema"], several_topics=several_topics), cluster)
    queued = named["receiver_queue_size"] != 0
    flow = None if name is None or not queued else Flow(listens=bool(listener))
    native_listener = None
    if chain is not None and listener:
        listener = chain.listening(listener)
    if listener:
        native_listener = _Listener(
            listener if flow is None else flow.handling(listener), context, messages, topic, compaction
        )
        named["reader_listener"] = weak_listener(native_listener)
    opened += map(call, (partial(create, **named),))
    (official,) = opened
    reader = make(official, context, messages, topic, queued=queued, compaction=compaction, flow=flow)
    reopener = ReaderReopener(reader, create, named, context)
    reader._set_reopener_(reopener, cluster)
    if flow is not None and name is not None:
        reader._monitor_permits_(flow, name, reopener.move_before)
    reader._listen_(native_listener)
    if native_listener is not None:
        native_listener.reader = weakref.ref(reader)
    if chain is not None:
        if not chain.awaited:
            intercept_reader(reader, chain)
        chain.show(reader)
        register_chain(context, chain, topic)
    opened += (reader,)


def open_table_view(
    context: ClientContext, create: Callable[..., pulsar.Reader], named: Arguments, opened: list[pulsar.Reader]
) -> None:
    """Open a table view, which first reads the whole topic; `opened` gets both readers, and then the view."""
    topic, name, schema = named["topic"], named["subscription_name"], named["schema"]
    if isinstance(schema, KeyValueSchema | AutoConsumeSchema):
        raise InvalidUse(f"A table view does not support a {type(schema).__name__}. Nothing was opened.")
    reading = {"schema": schema, "subscription_role_prefix": name, "is_read_compacted": True}
    open_reader(
        context,
        create,
        named_arguments(pulsar.Client.create_reader, (topic, MessageId.earliest), reading),
        opened,
        skips_removed=False,  # a view drops messages without a key
    )
    ends_incomplete = partial(ends_in_incomplete_message, context.admin_api, topic)
    reader, end = opened[1], End()

    def find_end() -> None:
        # Without an end, the view reads until no message is left.
        with contextlib.suppress(AdminError, pulsar.PulsarException):
            end.find(reader.get_last_message_ids())

    context.inquiries.run(find_end)  # in the background, because the admin API may not answer
    opened += (TableView._assemble_(reader, topic, name, schema, ends_incomplete, end),)


class _Listener:
    """Calls an application's reader listener."""

    def __init__(
        self,
        listener: Callable[[Reader, Message], object],
        context: ClientContext,
        messages: type[Message],
        topic: str,
        compaction: CompactionFilter | None,
    ) -> None:
        self._listener, self._context, self._messages, self._topic = listener, context, messages, topic
        self._compaction = compaction
        self.reader: weakref.ref[Reader] | None = None
        """Weak, because the C++ reader keeps the listener."""

    def __call__(self, official: pulsar.Consumer, message: pulsar.Message) -> None:
        """Deliver one message, on a thread of the C++ client."""
        if self._compaction is not None and not self._compaction(inner_message_of(message)):
            return
        reader = None if self.reader is None else self.reader()
        if reader is None:  # create_reader has not returned yet
            reader = Reader._assemble_(listener_reader(official), self._context, self._messages, self._topic)
        if (received := reader._listened_(message)) is not None:
            guard_listener(self._listener, reader, received)
