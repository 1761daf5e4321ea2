"""Transfers: `pulsar-ext redrive` and `pulsar-ext copy` send stored messages to another topic, each once.

A transfer may be killed at any time and started again. Three things make it exact:

- **The subscription on the source** has what is still to be transferred. A message is acknowledged when its copy is
  persisted. Its consumer is exclusive, so there is one transfer at a time.
- **The marker**, a subscription on each target. It is created before the first copy is sent and deleted after the last
  acknowledgement is confirmed, so no copy is trimmed in between, even if all others have consumed it.
- **The origin**, a property of each copy. When a transfer starts, it reads the copies after the marker, and only
  acknowledges their originals.

Before that reading, no copy of a killed process may be in flight: all producers of a transfer have the same name, so
the broker opens one only after it has dropped the connection of another process, and then the adds in flight are
awaited. A schema, and the size from which messages are sent in chunks, belong to a producer. So there is one after the
other, and each is flushed before the next one.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import pulsar
from pulsar.schema import BytesSchema

from ._native import threads
from ._native.schemas import LETTER_VERSION
from ._runtime.retry import retry
from ._wire.batch_payload import Base64Key, bytes_of_base64
from .admin import CursorInfo, PulsarAdmin
from .dedup.opening import Recall
from .errors import AdminError, InvalidUse, PulsarExtError
from .ids.message_id import MessageId
from .ids.position import Position
from .ids.topic_name import TopicName
from .message import Message
from .produce.outcome import BulkOutcome
from .redelivery.letters import LETTER_PROPERTIES, REAL_TOPIC, LetterSchema, LetterSchemas
from .schema.auto_consume import AutoConsumeSchema

if TYPE_CHECKING:
    from .client.client import Client
    from .consumer import Consumer
    from .producer import Producer
    from .reading import Reading

ORIGIN: Final = "PULSAR_EXT_COPY_OF"
"""Property of a copy: the topic or partition of its original, a space, and the id of its original."""
_WINDOW_MESSAGES: Final = 1_000
_WINDOW_BYTES: Final = 16 * 1024 * 1024
_MAX_MESSAGE_SIZE: Final = 5 * 1024 * 1024
"""The broker's default."""
_LAST_IN_BATCH: Final = 2**30
"""An index above that of any message of a batch."""
_BUSY_SECONDS: Final = 10.0
"""Time in which a broker drops the connection of a killed process."""
_WRITES_SECONDS: Final = 20.0
_POLL_SECONDS: Final = 0.05
_CONNECTION_POLL_SECONDS: Final = 0.001
"""Much less than the 0.1 s after which the C++ client reconnects."""
T = TypeVar("T")


class Form(NamedTuple):
    """The properties of a message that belong to its producer."""

    schema: LetterSchema
    key_type: type[str]
    is_large: bool
    """True if it may have to be sent in chunks."""


class Item(NamedTuple):
    """A message to transfer."""

    message: Message[object]
    id: str
    target: str
    form: Form
    size: int


@dataclass
class Summary:
    """Numbers of messages of a transfer."""

    found: int = 0
    """Unacknowledged messages that were stored when it began."""
    excluded: int = 0
    already_sent: int = 0
    """Messages whose copies were on the target when it began."""
    sent: int = 0
    targets: dict[str, int] = field(default_factory=dict)
    """Those found for each target, without the excluded ones."""


def windows(items: Iterable[Item], messages: int = _WINDOW_MESSAGES, size: int = _WINDOW_BYTES) -> Iterator[list[Item]]:
    """Yield items in lists of at most `messages` items; only the last one of each may exceed `size` bytes."""
    window: list[Item] = []
    total = 0
    for item in items:
        window.append(item)
        total += item.size
        if len(window) == messages or total >= size:
            yield window
            window, total = [], 0
    if window:
        yield window


def runs(window: Iterable[Item], copied: Mapping[str, set[str]]) -> Iterator[tuple[str, Form, list[Item]]]:
    """Yield the items without a copy, by target and form (pure); those of one target stay in order."""
    by_target: dict[str, list[Item]] = {}
    for item in window:
        if item.id not in copied[item.target]:
            by_target.setdefault(item.target, []).append(item)
    for target, items in by_target.items():
        for form, same in groupby(items, attrgetter("form")):
            yield target, form, list(same)


def copied_properties(properties: Mapping[str, str], origin: str, *, is_letter: bool) -> dict[str, str]:
    """Return the properties of a copy: the message's own, without those of a letter, and its origin (pure)."""
    dropped = LETTER_PROPERTIES if is_letter else frozenset((LETTER_VERSION,))
    return {name: value for name, value in properties.items() if name not in dropped} | {ORIGIN: origin}


def _patiently(call: Callable[[], T], what: str) -> T:
    """Retry while another process is connected; it may have been killed just now."""
    deadline, busy = time.monotonic() + _BUSY_SECONDS, (pulsar.ConsumerBusy, pulsar.ProducerBusy)
    try:
        return retry(call, lambda error: isinstance(error, busy) and time.monotonic() < deadline, seconds=0.2)
    except busy as error:
        raise type(error)(
            f"Pulsar error: {type(error).__name__}: {what} is in use, perhaps by another transfer. This one sent "
            "nothing; start it again when the other one has ended."
        ) from None


def _partitions(admin: PulsarAdmin, topic: str) -> list[str]:
    """Return the partitions of a topic, or the topic itself; raise AdminNotFound if it does not exist."""
    name = TopicName.parse(topic)
    parts = [str(part) for part in name.parts(0 if name.is_partition else admin.partitions(name))]
    for part in parts:
        admin.internal_stats(part)
    return parts


def _read(client: Client, cursors: Mapping[str, CursorInfo | None], end: Mapping[str, MessageId] | None) -> Reading:
    """Read what was stored after the mark-delete position of each cursor."""

    def begin(topic: str, mark: Position) -> MessageId:
        if mark.entry_id < 0:
            return MessageId.earliest
        return MessageId(TopicName.parse(topic).partition_index, mark.ledger_id, mark.entry_id, _LAST_IN_BATCH)

    starts = {topic: begin(topic, cursor.mark_delete_position) for topic, cursor in cursors.items() if cursor}
    reading: Reading = client.read([*cursors], starts, end, start_inclusive=False, schema=AutoConsumeSchema())
    return reading


class _Target:
    """A topic that gets copies, with one producer at a time."""

    def __init__(self, client: Client, topic: str, name: str, source: str) -> None:
        self._client, self._topic, self._name, self._prefix = client, topic, name, f"{source} "
        self._admin = client.context.admin_api()
        self._partitions = _partitions(self._admin, topic)
        self._form: Form | None = None
        self._producer: Producer[bytes] | None = None
        self._deduplicates = False
        self._added: dict[str, str] = {}

    def begin(self, form: Form) -> set[str]:
        """Create the marker, exclude other processes, and return the ids of messages that have a copy."""
        for topic in self._partitions:
            if self._name not in self._admin.internal_stats(topic).cursors:
                self._admin.create_subscription(topic, self._name, "latest")
        self.open(form)
        for topic in self._partitions:
            self._await_writes(topic)
        return self.copied()

    def copied(self) -> set[str]:
        """Return the ids of messages that have a copy after the marker; none without a marker."""
        cursors = {topic: self._admin.internal_stats(topic).cursors.get(self._name) for topic in self._partitions}
        prefix = self._prefix
        with _read(self._client, {topic: cursor for topic, cursor in cursors.items() if cursor}, None) as reading:
            origins = (message.properties().get(ORIGIN, "") for message in reading)
            return {origin.removeprefix(prefix) for origin in origins if origin.startswith(prefix)}

    def open(self, form: Form) -> None:
        """Open the producer of a form, after closing that of another one."""
        if form == self._form:
            return
        self.close()
        schema = form.schema
        self._added = dict(schema.register(self._client.context, str(TopicName.parse(self._topic).parent)))
        states = {self._admin.stats(topic).deduplication_status for topic in self._partitions}
        self._deduplicates = states.isdisjoint(("Disabled", ""))
        opening = partial(
            self._client.create_producer,
            self._topic,
            self._name,
            schema.encoded,
            chunking_enabled=form.is_large,
            batching_enabled=not form.is_large,
            batching_type=pulsar.BatchingType.KeyBased,
            batching_max_publish_delay_ms=1,
            max_pending_messages=0,
            deduplication=Recall("", 0, is_new=True) if self._deduplicates else False,
        )
        self._producer, self._form = _patiently(opening, self._topic), form

    def send(self, form: Form, items: list[Item], *, is_letter: bool) -> None:
        """Send copies, and return when all of them are persisted.

        After a lost connection the C++ client would resend copies that may be persisted. If the broker does not
        deduplicate them, the producer is closed before, and the missing copies are sent as by another process.
        """
        while not self._try(form, items, is_letter=is_letter):
            copied = self.begin(form)
            items = [item for item in items if item.id not in copied]

    def _try(self, form: Form, items: list[Item], *, is_letter: bool) -> bool:
        """Send copies; return False if the connection was lost before all of them were persisted."""
        self.open(form)
        producer, outcome, key_type = self._producer, BulkOutcome(), form.key_type
        assert producer is not None  # noqa: S101  # opened above
        unsent = iter(items)
        while outcome.done < len(items):
            if not (self._deduplicates or producer.is_connected()):
                self.close()
                return False
            item = next(unsent, None)
            if item is None:
                threads.sleep(_CONNECTION_POLL_SECONDS)
                continue
            inner = item.message.inner
            properties = copied_properties(inner.properties(), self._prefix + item.id, is_letter=is_letter)
            producer.send_async(
                None if inner.has_null_value() else inner.data(),  # type: ignore[arg-type]  # without a value
                outcome.one,
                properties | self._added,
                key_type(inner.partition_key()) or None,
                ordering_key=inner.ordering_key() or None,
                event_timestamp=inner.event_timestamp() or None,
            )
        outcome.raise_failure()
        return True

    def close(self) -> None:
        """Close the producer."""
        if self._producer is not None:
            self._producer.close()
        self._producer = self._form = None

    def end(self) -> None:
        """Close the producer and delete the marker: all copies have been acknowledged."""
        self.close()
        for topic in self._partitions:
            self._admin.delete_subscription(topic, self._name)

    def _await_writes(self, topic: str) -> None:
        """Wait until every add that is in flight now is persisted or has failed."""
        first, deadline = self._admin.internal_stats(topic).raw, time.monotonic() + _WRITES_SECONDS
        pending, added = first.get("pendingAddEntriesCount", 0), first.get("entriesAddedCounter", 0)
        while pending:
            threads.sleep(_POLL_SECONDS)
            raw = self._admin.internal_stats(topic).raw
            now = raw.get("entriesAddedCounter", 0)
            if not raw.get("pendingAddEntriesCount", 0) or now >= added + pending or now < added:  # it was reloaded
                return
            if time.monotonic() > deadline:
                raise PulsarExtError(
                    f"{topic} has had writes pending for {_WRITES_SECONDS:g} s, so it is unknown which copies are "
                    "persisted. Nothing was sent; try again later."
                )


@dataclass(frozen=True)
class Transfer:
    """A transfer from a topic to another one, or of dead letters to the topics that they came from.

    Args:
        client: the client of the source.
        target_client: the client of the targets.
        source: the topic, partitioned or not.
        subscription: the subscription on it; it is created at the earliest message.
        to: the target; None for the topic from which each letter came.
        is_letter: whether messages are letters, whose own properties are dropped.
        wanted: returns whether to transfer a message; None for all. Others are excluded.
        keeps_excluded: whether excluded messages stay unacknowledged.
        cluster: the name of the source's cluster if the target is in another one, else empty.
    """

    client: Client
    target_client: Client
    source: str
    subscription: str
    to: str | None
    is_letter: bool
    wanted: Callable[[Message[object]], bool] | None = None
    keeps_excluded: bool = True
    cluster: str = ""
    summary: Summary = field(default_factory=Summary)

    def run(self, *, dry_run: bool = False, on_progress: Callable[[int, int], object] = lambda *_: None) -> None:
        """Transfer the messages that are stored now; with `dry_run`, only count them.

        `on_progress` is called with the number of transferred messages and that of all.

        Raises:
            InvalidUse: a letter has no origin, a target is the source, or a batch is partly excluded.
            AdminNotFound: the source or a target does not exist.
            pulsar.IncompatibleSchema: a target rejects a schema of the source.
            pulsar.ConsumerBusy, pulsar.ProducerBusy: another transfer is running.

        These are raised before anything is sent. After any other error the next run continues.
        """
        admin = self.client.context.admin_api()
        partitions, summary = _partitions(admin, self.source), self.summary
        targets: list[str] = []
        if self.to is not None:
            self.check_target(self.to)
            targets = _partitions(self.target_client.context.admin_api(), self.to)
        with ExitStack() as stack:
            parts = []
            for index, topic in enumerate(partitions):
                to = targets[index] if not self.is_letter and 1 < len(targets) == len(partitions) else self.to
                part = _Part(self, topic, to)
                parts.append(part)
                if not dry_run:
                    stack.enter_context(part.consumer())
            for part in parts:
                part.survey(is_dry=dry_run)
            if dry_run:
                return
            for part in parts:
                stack.callback(part.close)
                part.check()
            for part in parts:
                part.move(lambda: on_progress(summary.sent + summary.already_sent, sum(summary.targets.values())))

    def check_target(self, target: str) -> None:
        """Raise `InvalidUse` if a target is the source; topics of one name in two clusters differ by their creation."""
        if (name := TopicName.parse(self.source).parent) != TopicName.parse(target).parent:
            return
        here, there = (one.context.admin_api() for one in (self.client, self.target_client))
        first = _partitions(here, str(name))[0]
        made, other = (one.internal_stats(first).raw.get("lastLedgerCreatedTimestamp") for one in (here, there))
        if made == other:
            raise InvalidUse(f"{target} is the source of the transfer. Nothing was sent; choose another target.")

    @cached_property
    def large(self) -> int:
        """Size in bytes from which messages may have to be sent in chunks: with room for properties."""
        settings: Mapping[str, str] = {}
        with suppress(AdminError):
            settings = self.target_client.context.admin_api().broker_configuration()
        return int(settings.get("maxMessageSize", _MAX_MESSAGE_SIZE)) // 2

    @property
    def marker(self) -> str:
        """Prefix of the names of markers and producers."""
        return "pulsar-ext-redrive-" if self.is_letter else "pulsar-ext-copy-"


class _Part:
    """The transfer of one topic or partition."""

    def __init__(self, transfer: Transfer, topic: str, to: str | None) -> None:
        self._transfer, self._topic, self._to = transfer, topic, to
        self._admin = transfer.client.context.admin_api()
        self._schemas = LetterSchemas(transfer.client.context, BytesSchema())
        self._targets: dict[str, _Target] = {}
        self._forms: dict[str, list[Form]] = {}
        """The forms of the messages for each target, in order."""
        self._names = cache(lambda topic: str(TopicName.parse(topic)))
        self._end: Mapping[str, MessageId] | None = None
        self._cursor: CursorInfo | None = None
        self._consumer: Consumer | None = None

    def consumer(self) -> Consumer:
        """Open the consumer of the subscription: no other transfer has one."""
        transfer = self._transfer
        self._consumer = _patiently(
            lambda: transfer.client.subscribe(
                self._topic,
                transfer.subscription,
                receiver_queue_size=1,  # it only acknowledges
                initial_position=pulsar.InitialPosition.Earliest,
            ),
            f"The subscription {transfer.subscription} of {self._topic}",
        )
        return self._consumer

    def survey(self, *, is_dry: bool) -> None:
        """Count the messages, and check each; `is_dry` also looks up those that have a copy."""
        self._cursor = self._admin.internal_stats(self._topic).cursors.get(self._transfer.subscription)
        summary, copied = self._transfer.summary, dict[str, set[str]]()
        excluded_batch = included_batch = None
        for message, is_wanted in self._messages():
            summary.found += 1
            message_id = message.message_id()
            entry = (message_id.ledger_id(), message_id.entry_id()) if message_id.batch_index() >= 0 else None
            if not is_wanted:
                summary.excluded += 1
                excluded_batch = entry
            else:
                item = self._item(message)
                self._add(item)
                included_batch = entry
                if is_dry:
                    if item.target not in copied:
                        copied[item.target] = self._targets[item.target].copied()
                    summary.already_sent += item.id in copied[item.target]
            if entry is not None and excluded_batch == included_batch and self._transfer.keeps_excluded:
                raise InvalidUse(
                    f"The batch {entry[0]}:{entry[1]} of {self._topic} has excluded messages and others, and a batch "
                    "is acknowledged as a whole. Nothing was sent; choose all of its messages, or none."
                )

    def _messages(self) -> Iterator[tuple[Message[object], bool]]:
        """Yield the unacknowledged messages up to a fixed end, each with whether it is wanted."""
        transfer, cursor = self._transfer, self._cursor
        with _read(transfer.client, {self._topic: cursor}, self._end) as reading:
            self._end = self._end or reading.stored
            for message in reading:
                message_id = message.message_id()
                if cursor is None or not cursor.acknowledges(Position(message_id.ledger_id(), message_id.entry_id())):
                    yield message, transfer.wanted is None or transfer.wanted(message)

    def _item(self, message: Message[object]) -> Item:
        inner, text = message.inner, message.message_id().to_text()
        target = self._to or inner.properties().get(REAL_TOPIC)
        if not target:
            raise InvalidUse(
                f"The message {text} of {self._topic} has no property {REAL_TOPIC}, so it is unknown where it came "
                "from. Nothing was sent; name the target with --to, or exclude the message."
            )
        schema, size = self._schemas.of(inner), inner.length()
        has_base64_key = schema.has_separate_key and bytes_of_base64(inner.partition_key()) is not None
        form = Form(schema, Base64Key if has_base64_key else str, size >= self._transfer.large)
        return Item(message, text, self._names(target), form, size)

    def _add(self, item: Item) -> None:
        """Count an item, and note its form; check that its target exists if it is new."""
        transfer, target = self._transfer, item.target
        transfer.summary.targets[target] = transfer.summary.targets.get(target, 0) + 1
        if target not in self._targets:
            transfer.check_target(target)
            origin = f"{transfer.cluster}|{self._topic}" if transfer.cluster else self._topic
            # With the target, because letters of a partition and of its partitioned topic have one each.
            digest = hashlib.sha256(f"{origin} {transfer.subscription} {target}".encode()).hexdigest()
            self._targets[target] = _Target(transfer.target_client, target, transfer.marker + digest[:16], origin)
            self._forms[target] = []
        if item.form not in self._forms[target]:
            self._forms[target].append(item.form)

    def check(self) -> None:
        """Check that each target accepts each form."""
        for topic, target in self._targets.items():
            for form in self._forms[topic]:
                target.open(form)
            target.close()

    def move(self, on_progress: Callable[[], object]) -> None:
        """Send the messages, acknowledge each when its copy is persisted, and confirm the acknowledgements."""
        consumer, transfer, summary = self._consumer, self._transfer, self._transfer.summary
        assert consumer is not None  # noqa: S101  # opened before
        copied = {topic: target.begin(self._forms[topic][0]) for topic, target in self._targets.items()}
        for window in windows(self._wanted(consumer)):
            count = 0
            for topic, form, items in runs(window, copied):
                self._targets[topic].send(form, items, is_letter=transfer.is_letter)
                summary.sent += len(items)
                count += len(items)
            summary.already_sent += len(window) - count
            consumer.acknowledge_many([item.message for item in window])
            on_progress()
        consumer.flush_acks(confirm=True, timeout_ms=60_000)
        for target in self._targets.values():
            target.end()

    def _wanted(self, consumer: Consumer) -> Iterator[Item]:
        for message, is_wanted in self._messages():
            if is_wanted:
                yield self._item(message)
            elif not self._transfer.keeps_excluded:
                consumer.acknowledge(message)

    def close(self) -> None:
        """Close what is open, after an error or a Ctrl-C: the next run continues."""
        for target in self._targets.values():
            with suppress(pulsar.PulsarException):
                target.close()
        if self._consumer is not None:
            with suppress(pulsar.PulsarException):
                self._consumer.flush_acks()
