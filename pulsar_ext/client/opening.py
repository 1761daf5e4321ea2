"""Opening of producers, consumers and readers with the official arguments by name: completely or not at all.

The schema is compared with the topic's before anything is opened. The broker decides by the namespace's strategy which
schemas may be used; if it rejects one, the error lists the differences. A schema that cannot read the topic's messages
is detected here, whatever the strategy allows.
"""

from __future__ import annotations

import contextlib
from functools import partial
from types import MethodType
from typing import TYPE_CHECKING, Any

import pulsar

from pulsar_ext._native.handles import ClientHandle, consumers_of
from pulsar_ext._native.interruptible import InterruptibleClient
from pulsar_ext._native.seek_gate import SeekGate
from pulsar_ext.errors import SchemaMismatch
from pulsar_ext.receive.undecryptable import tolerates_decryption_failure, unique_name
from pulsar_ext.schema.choice import VersionLookup, schema_of
from pulsar_ext.schema.reading import SchemaText, explain
from pulsar_ext.schema.typed import TypedSchema

from .authentication import authentication_error_details
from .consumers import ConsumerSettings, open_consumer
from .producers import make_producer
from .reachability import opening_error_details
from .readers import open_reader, open_table_view

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pulsar_ext._runtime.context import ClientContext
    from pulsar_ext.consumer import Consumer
    from pulsar_ext.producer import Producer
    from pulsar_ext.reader import Reader
    from pulsar_ext.table_view import TableView


def check_readable(interruptible: InterruptibleClient, topics: Any, schema: Any) -> None:
    """Raise if a schema of this library cannot read the topics' latest schemas.

    Args:
        interruptible: the client for schema look-ups.
        topics: a name or a list of names; a pattern is not checked.
        schema: the schema object.

    Raises:
        SchemaMismatch: it cannot; nothing was opened.
    """
    if not isinstance(schema, TypedSchema):
        return
    for topic in _names(topics):
        if found := schema.cannot_read(topic, partial(interruptible.schema_of, topic)):
            raise SchemaMismatch(
                f"{schema} cannot read the messages of {topic}: {'; '.join(found)}. Nothing was opened.",
                differences=found,
            )


@contextlib.contextmanager
def schema_error_details(interruptible: InterruptibleClient, topics: Any, schema: Any) -> Iterator[None]:
    """Add the differences from the topic's schema to the broker's error of an incompatible schema.

    Args:
        interruptible: the client for schema look-ups.
        topics: the topics to open.
        schema: the schema object.
    """
    try:
        yield
    except SchemaMismatch:
        raise
    except pulsar.IncompatibleSchema as error:
        lines = [one.strip() for one in str(error).splitlines() if one.strip()]
        rejection = lines[0].removeprefix("Pulsar error: ") if lines else "IncompatibleSchema"
        found: list[str] = []
        for topic in _names(topics):
            topic_schema = interruptible.schema_of(topic)
            if topic_schema is not None:
                found += explain(_text_of(schema), SchemaText(*topic_schema))
        shown = "; ".join(found) or "none from its latest schema: an older one, or the strategy, forbids this"
        raise SchemaMismatch(
            f"The broker rejects {schema} for {topics} ({rejection}). The differences: {shown}. Nothing was opened.",
            differences=tuple(found),
        ) from error


def _names(topics: Any) -> list[str]:
    if isinstance(topics, str):
        return [topics]
    return list(topics) if isinstance(topics, list | tuple) else []


def _text_of(schema: Any) -> SchemaText:
    info = schema.schema_info()
    return SchemaText(info.schema_type().name, info.schema())


class ClientOpening:
    """Methods of `Client` that open; a base class before the official one."""

    __slots__ = ()
    _authentication: Any
    context: ClientContext
    inner: Any

    def _open_producer_(self, named: dict[str, Any], **options: Any) -> Producer[Any]:
        """Create a producer; the options are those of `make_producer()`."""
        named = self._with_schema(named, reads=False)
        with self._with_error_details(named) as interruptible:
            if isinstance(named["schema"], TypedSchema):
                named["schema"].adapt_to_topic(partial(interruptible.schema_of, named["topic"]))
                named["schema"].register(named["topic"])
            return make_producer(self._client_handle, self.context, named, **options)

    def _open_consumer_(
        self, named: dict[str, Any], *, settings: ConsumerSettings | None = None, **options: Any
    ) -> Consumer[Any]:
        """Subscribe; the options are those of `open_consumer()`."""
        settings = settings or ConsumerSettings(named["pattern_auto_discovery_period"])
        options = {"gate": SeekGate(self.inner), "settings": settings, **options}
        consumer: Consumer[Any] = self._open(open_consumer, InterruptibleClient.open_consumer, named, options, settings)
        return consumer

    def _open_reader_(self, named: dict[str, Any], **options: Any) -> Reader[Any]:
        """Create a reader; the options are those of `open_reader()`."""
        opening = partial(self._open, open_reader, InterruptibleClient.open_reader, named, options)
        if tolerates_decryption_failure(named):
            name = options["name"] = unique_name()
            opening = partial(opening, configure=lambda one: one.reader_name(name))
        reader: Reader[Any] = opening()
        return reader

    def _open_table_view_(self, named: dict[str, Any]) -> TableView[Any]:
        """Create a table view."""
        view: TableView[Any] = self._open(open_table_view, InterruptibleClient.open_reader, named, {})
        return view

    def _open(
        self,
        open_one: Callable[..., None],
        open_official: Callable[..., Any],
        named: dict[str, Any],
        options: dict[str, Any],
        configure: Callable[[Any], None] = lambda _: None,
    ) -> Any:
        """Open a consumer or a reader; close everything again if that fails or is interrupted by a Ctrl-C."""
        named = self._with_schema(named, reads=True)
        opened: list[Any] = []
        try:
            with self._with_error_details(named, configure) as interruptible:
                if isinstance(named["schema"], TypedSchema) and isinstance(named["topic"], str):
                    named["schema"].adapt_to_topic(partial(interruptible.schema_of, named["topic"]))
                check_readable(interruptible, named["topic"], named["schema"])
                open_one(self.context, MethodType(open_official, interruptible), named, opened, **options)
            consumers_of(self._client_handle).append(opened[1])
            return opened[-1]
        except BaseException:
            self._close_opened(opened)
            raise

    @property
    def _client_handle(self) -> ClientHandle:
        client: Any = self
        return client  # type: ignore[no-any-return]  # this class is a base of a ClientHandle

    def _with_schema(self, named: dict[str, Any], *, reads: bool) -> dict[str, Any]:
        """Return the arguments with the schema object that `schema` means."""
        return {**named, "schema": schema_of(named["schema"], self.context.admin_api, reads=reads)}

    @contextlib.contextmanager
    def _with_error_details(
        self, named: dict[str, Any], configure: Callable[[Any], None] = lambda _: None
    ) -> Iterator[InterruptibleClient]:
        """Yield a client for the opening, and add details to its errors."""
        context = self.context
        # The schema object belongs to the application and must not keep the client alive.
        connected_to = context.cluster.number if context.cluster.may_change else int
        versions = VersionLookup(self.inner.get_schema_info, connected_to, connected_to())
        interruptible = InterruptibleClient(self.inner, context.senders.ask, configure, versions)
        topics = named["topic"]  # the opening may change it
        with (
            opening_error_details(context, self._connected_url, named),
            authentication_error_details(self._authentication),
            schema_error_details(interruptible, topics, named["schema"]),
        ):
            yield interruptible

    def _connected_url(self) -> str:
        """Return the client's current service URL."""
        return str(self._client_handle.get_service_info().service_url)

    def _close_opened(self, opened: list[Any]) -> None:
        """Close opened objects that the caller does not get: they would hold the subscription, or messages."""
        for one in reversed(opened):
            with contextlib.suppress(pulsar.PulsarException, ValueError):
                one.close()
        consumers = consumers_of(self._client_handle)
        consumers[:] = [one for one in consumers if one not in opened]
