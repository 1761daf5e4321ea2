"""Opening whatever a client opens, with the official arguments by name: all of it, or nothing.

The schema of what is about to be opened is compared with the topic's first. What writers may write is the broker's
decision, by the namespace's strategy; if it rejects a schema, the error says how it differs. What a reader cannot read
is found here, whatever the strategy lets pass.
"""

from __future__ import annotations

import contextlib
from functools import partial
from types import MethodType
from typing import TYPE_CHECKING, Any

import pulsar

from pulsar_ext._native.asking import AskingClient
from pulsar_ext._native.handles import ClientDoor, consumers_of
from pulsar_ext._native.seek_gate import SeekGate
from pulsar_ext.errors import SchemaMismatch
from pulsar_ext.receive.undecryptable import goes_on, unique_name
from pulsar_ext.schema.choice import VersionLookup, schema_of
from pulsar_ext.schema.reading import SchemaText, explain
from pulsar_ext.schema.typed import TypedSchema

from .authentication import telling_why
from .consumers import ConsumerSettings, open_consumer
from .producers import make_producer
from .reachability import telling_what_is_known
from .readers import open_reader, open_table_view

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pulsar_ext._runtime.context import ClientContext
    from pulsar_ext.consumer import Consumer
    from pulsar_ext.producer import Producer
    from pulsar_ext.reader import Reader
    from pulsar_ext.table_view import TableView


def check_readable(asking: AskingClient, topics: Any, schema: Any) -> None:
    """Refuse a schema of this library that cannot read what the topics' last schemas write.

    Args:
        asking: asks the broker.
        topics: a name, a list of names, or a pattern, of whose topics nothing is known.
        schema: the schema object.

    Raises:
        SchemaMismatch: it cannot; nothing was opened.
    """
    if not isinstance(schema, TypedSchema):
        return
    for topic in _names(topics):
        if found := schema.cannot_read(topic, partial(asking.schema_of, topic)):
            raise SchemaMismatch(
                f"{schema} cannot read what is on {topic}: {'; '.join(found)}. Nothing was opened.", differences=found
            )


@contextlib.contextmanager
def telling_differences(asking: AskingClient, topics: Any, schema: Any) -> Iterator[None]:
    """Have an error that the broker does not take a schema say how it differs from the topic's.

    Args:
        asking: asks the broker.
        topics: what is opened.
        schema: the schema object.
    """
    try:
        yield
    except SchemaMismatch:
        raise
    except pulsar.IncompatibleSchema as error:
        lines = [one.strip() for one in str(error).splitlines() if one.strip()]
        said = lines[0].removeprefix("Pulsar error: ") if lines else "IncompatibleSchema"
        found: list[str] = []
        for topic in _names(topics):
            theirs = asking.schema_of(topic)
            if theirs is not None:
                found += explain(_text_of(schema), SchemaText(*theirs))
        shown = "; ".join(found) or "none from its last schema: an older one, or the strategy, forbids this"
        raise SchemaMismatch(
            f"The broker does not take {schema} for {topics} ({said}). The differences: {shown}. Nothing was opened.",
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
    """How a `Client` opens things; stands before the official class."""

    __slots__ = ()
    _authentication: Any
    context: ClientContext
    inner: Any

    def _open_producer_(self, named: dict[str, Any], **options: Any) -> Producer[Any]:
        """Create a producer; the options are those of `make_producer()`."""
        named = self._with_schema(named, reads=False)
        with self._explaining(named) as asking:
            if isinstance(named["schema"], TypedSchema):
                named["schema"].settle(partial(asking.schema_of, named["topic"]))
                named["schema"].register(named["topic"])
            return make_producer(self._client_door, self.context, named, **options)

    def _open_consumer_(
        self, named: dict[str, Any], *, settings: ConsumerSettings | None = None, **options: Any
    ) -> Consumer[Any]:
        """Subscribe; the options are those of `open_consumer()`."""
        settings = settings or ConsumerSettings(named["pattern_auto_discovery_period"])
        options = {"gate": SeekGate(self.inner), "settings": settings, **options}
        consumer: Consumer[Any] = self._open(open_consumer, AskingClient.open_consumer, named, options, settings)
        return consumer

    def _open_reader_(self, named: dict[str, Any], **options: Any) -> Reader[Any]:
        """Create a reader; the options are those of `open_reader()`."""
        opening = partial(self._open, open_reader, AskingClient.open_reader, named, options)
        if goes_on(named):
            name = options["name"] = unique_name()
            opening = partial(opening, configure=lambda one: one.reader_name(name))
        reader: Reader[Any] = opening()
        return reader

    def _open_table_view_(self, named: dict[str, Any]) -> TableView[Any]:
        """Create a table view."""
        view: TableView[Any] = self._open(open_table_view, AskingClient.open_reader, named, {})
        return view

    def _open(
        self,
        open_one: Callable[..., None],
        open_official: Callable[..., Any],
        named: dict[str, Any],
        options: dict[str, Any],
        configure: Callable[[Any], None] = lambda _: None,
    ) -> Any:
        """Open a consumer or a reader; nothing of it stays open if that fails, or a Ctrl-C ends it."""
        named = self._with_schema(named, reads=True)
        opened: list[Any] = []
        try:
            with self._explaining(named, configure) as asking:
                if isinstance(named["schema"], TypedSchema) and isinstance(named["topic"], str):
                    named["schema"].settle(partial(asking.schema_of, named["topic"]))
                check_readable(asking, named["topic"], named["schema"])
                open_one(self.context, MethodType(open_official, asking), named, opened, **options)
            consumers_of(self._client_door).append(opened[1])
            return opened[-1]
        except BaseException:
            self._close_again(opened)
            raise

    @property
    def _client_door(self) -> ClientDoor:
        client: Any = self
        return client  # type: ignore[no-any-return]  # stands before it

    def _with_schema(self, named: dict[str, Any], *, reads: bool) -> dict[str, Any]:
        """Give the arguments with the schema object that is meant by them."""
        return {**named, "schema": schema_of(named["schema"], self.context.admin_api, reads=reads)}

    @contextlib.contextmanager
    def _explaining(
        self, named: dict[str, Any], configure: Callable[[Any], None] = lambda _: None
    ) -> Iterator[AskingClient]:
        """Have errors say more than the C++ client does."""
        context = self.context
        # An official schema object is the application's, and must not keep the client.
        connected_to = context.cluster.number if context.cluster.may_change else int
        versions = VersionLookup(self.inner.get_schema_info, connected_to, connected_to())
        asking = AskingClient(self.inner, context.senders.ask, configure, versions)
        topics = named["topic"]  # an opening may change it
        with (
            telling_what_is_known(context, self._connected_url, named),
            telling_why(self._authentication),
            telling_differences(asking, topics, named["schema"]),
        ):
            yield asking

    def _connected_url(self) -> str:
        """Return the service URL that the client connects to now."""
        return str(self._client_door.get_service_info().service_url)

    def _close_again(self, opened: list[Any]) -> None:
        """Close what nobody gets, as after a Ctrl-C: it would keep others from subscribing, or their messages."""
        for one in reversed(opened):
            with contextlib.suppress(pulsar.PulsarException, ValueError):
                one.close()
        consumers = consumers_of(self._client_door)
        consumers[:] = [one for one in consumers if one not in opened]
