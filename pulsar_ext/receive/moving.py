"""Moving consumers and readers to other places of their topics, and asking where these end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pulsar_ext._native.fork import closed_error
from pulsar_ext.chunks.resolver import seek_target
from pulsar_ext.ids.topic_name import TopicName

from .order import ReceiveOrder, Transition
from .several import partitions_of_each, targets_by_topic

if TYPE_CHECKING:
    from pulsar_ext._runtime.context import ClientContext
    from pulsar_ext.admin import InternalStats
    from pulsar_ext.ids.message_id import MessageId

__all__ = ["Moving"]


class Moving:
    """What a consumer and a reader do with places."""

    inner: Any
    _context: ClientContext
    _order: ReceiveOrder
    _topics: Any

    def seek(self, messageid: Any) -> None:
        """Move to a message, or to a publish time in milliseconds.

        A chunked message is reached at its first chunk, by whatever id. With `start_message_id_inclusive=True` it is
        the next one to come, otherwise the one after it is, as with Java's. The broker looks for a time as if publish
        times went up along the topic: where producers' clocks differ, later messages may lie before the place found.

        A consumer of several topics or partitions also takes a dict that has an id or a time by topic, and moves on
        these only; of the others comes again what was not acknowledged.

        Raises:
            IncompleteChunkedMessage: the message cannot be delivered any more: chunks of it were trimmed.
            MessageIdNotFound: an id rebuilt from numbers is beyond the end of the topic.
            InvalidUse: it is neither an id nor an int.
        """
        self._context.callbacks.refuse("seek")
        if isinstance(messageid, Mapping):
            self._seek_each(messageid)
            return
        target = seek_target(self._context.resolver, self._topics, messageid)
        with self._order.passing(Transition.SEEK, lambda: self._begin_moving(None)):
            foundation = self._order.foundation
            (self.inner.seek if foundation is None else foundation.move)(target)

    def _seek_each(self, targets: Mapping[Any, Any]) -> None:
        """Move on some of several topics and partitions."""
        self._refuse_closed()
        topics = self._topics_read()
        found = targets_by_topic(targets, topics)
        if not found:
            return
        if isinstance(self._topics, str) and topics == [str(TopicName.parse(self._topics))]:
            self.seek(found[topics[0]])
            return
        resolver = self._context.resolver
        resolved = {topic: seek_target(resolver, topic, target) for topic, target in found.items()}
        with self._order.passing(Transition.SEEK, lambda: self._begin_moving(resolved)):
            self._order.foundation.move_each(resolved)

    def _begin_moving(self, targets: Mapping[str, Any] | None) -> None:
        """Have everybody know which of several topics the seek moves that is about to begin; None for all."""
        self._refuse_closed()
        foundation = self._order.foundation
        if foundation is not None:
            foundation.moves_some(targets)
        elif targets is not None:
            raise closed_error(type(self).__name__)

    def get_last_message_ids(self) -> list[MessageId]:
        """Give the id of the last message of each topic and partition; mirrors Java's `Consumer.getLastMessageIds`.

        Each knows its topic. Where there is no message, its entry is -1; of a chunked message it is the last chunk's,
        as bare numbers. The admin API is asked.

        Raises:
            AdminError: the admin API refused, or did not answer.
        """
        self._context.callbacks.refuse("get_last_message_ids")
        self._refuse_closed()
        admin = self._context.admin_api()
        return [admin.last_message_id(topic) for topic in self._topics_read()]

    def has_reached_end_of_topic(self) -> bool:
        """Tell whether there is nothing more to come, as the topic was terminated, and it has had everything.

        A consumer has had what its subscription has acknowledged: send acknowledgements first, with `flush_acks()`. Of
        several topics and partitions it holds for all. Mirrors Java's `Consumer.hasReachedEndOfTopic`; the broker tells
        the C++ client, which tells nobody, so the admin API is asked.

        Raises:
            AdminError: the admin API refused, or did not answer; a topic that is not persistent cannot be terminated.
        """
        self._context.callbacks.refuse("has_reached_end_of_topic")
        self._refuse_closed()
        admin = self._context.admin_api()
        stats = [admin.internal_stats(topic) for topic in self._topics_read()]
        return bool(stats) and all(one.state == "Terminated" for one in stats) and self._has_had_all(stats)

    def _has_had_all(self, stats: list[InternalStats], /) -> bool:
        """Whether everything on topics was consumed."""
        subscription = self.inner.subscription_name()
        cursors = [(one, one.cursors.get(subscription)) for one in stats]
        return all(
            cursor is not None and cursor.mark_delete_position >= one.last_confirmed_entry for one, cursor in cursors
        )

    def _topics_read(self) -> list[str]:
        """Give the full names of all topics and partitions."""
        return partitions_of_each(self._context, self._topics)

    def _refuse_closed(self) -> None:
        """Refuse a use behind a close."""
        raise NotImplementedError
