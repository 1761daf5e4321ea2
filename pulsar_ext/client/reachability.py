"""Details of failed openings: if the broker listens, what occupies the subscription or the producer name, and schemas.

The C++ client retries until its timeout and then only reports `TimeOut`, whether nothing listens or the broker rejects
the credentials. A socket and the admin API provide more. The broker decides by the namespace's strategy which schemas
may be used; if it rejects one, the error lists the differences. A schema that cannot read the topic's messages is
detected here before anything is opened, whatever the strategy allows.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from functools import partial

import pulsar

from pulsar_ext._native.interruptible import InterruptibleClient
from pulsar_ext._native.schemas import text_of
from pulsar_ext._native.signatures import Arguments
from pulsar_ext._runtime.context import ClientContext
from pulsar_ext.admin import PulsarAdmin, TopicStats
from pulsar_ext.errors import AdminError, PulsarExtError, SchemaMismatch
from pulsar_ext.ids.topic_name import TopicName
from pulsar_ext.schema.reading import explain
from pulsar_ext.schema.typed import TypedSchema

_SOCKET_SECONDS, _ADMIN_SECONDS = 1.0, 2.0
_MOST_ADDRESSES = 3
_NOTHING = "Nothing was opened"
_PORTS = {"pulsar": 6650, "pulsar+ssl": 6651}
_UNREACHED = (pulsar.Timeout, pulsar.ConnectError, pulsar.LookupError)


@contextlib.contextmanager
def opening_error_details(context: ClientContext, service_url: Callable[[], str], named: Arguments) -> Iterator[None]:
    """Add the details that a socket and the admin API provide to an error of an opening."""
    try:
        yield
    except PulsarExtError:
        raise
    except pulsar.InvalidTopicName:
        for topic in _names(named["topic"]):
            TopicName.parse(topic)
        raise
    except _UNREACHED as error:
        if _NOTHING not in str(error):  # an inner opening has already added it
            error.args = (f"{error}: {_connection_details(context, service_url())}",)  # the object has one traceback
        raise
    except (pulsar.ConsumerBusy, pulsar.ProducerBusy) as error:
        with contextlib.suppress(PulsarExtError):
            admin = context.admin_api().within(_ADMIN_SECONDS)
            if detail := "; ".join(_occupants(admin, named)):
                error.args = (f"{error}: {detail}. {_NOTHING}",)
        raise


def addresses_of(service_url: str) -> list[tuple[str, int]]:
    """Return the host and port of each broker in a service URL, with the default port if it has none (pure)."""
    scheme, _, rest = service_url.partition("://")
    found = []
    for one in rest.partition("/")[0].split(","):
        host, separator, port = one.rpartition(":")
        whole = separator and port.isdigit()
        found.append((host if whole else one, int(port) if whole else _PORTS.get(scheme, _PORTS["pulsar"])))
    return [(host.strip("[]"), port) for host, port in found]


def _connection_details(context: ClientContext, service_url: str) -> str:
    """Return the result of a connection to each address, and the admin API's result if one listens."""
    addresses = addresses_of(service_url)[:_MOST_ADDRESSES]
    problems = {f"{host}:{port}": problem_of(host, port) for host, port in addresses}
    silent = [f"{address}: {problem}" for address, problem in problems.items() if problem]
    if len(silent) == len(problems):
        return f"no broker listens ({'; '.join(silent)}). {_NOTHING}; start it, or correct the service URL"
    listening = ", ".join(address for address, problem in problems.items() if not problem)
    detail = "so does the admin API"
    try:
        context.admin_api().within(_ADMIN_SECONDS).clusters()
    except AdminError as error:
        detail = f"the admin API says HTTP {error.status}: {error.reason}" if error.status else "the admin API does not"
    except PulsarExtError:
        detail = "no admin API is known"
    return f"{listening} listens, and {detail}. {_NOTHING}; check credentials, TLS, and the broker's log"


def problem_of(host: str, port: int) -> str:
    """Return the reason why no broker can be reached at an address; empty if a broker may listen.

    A broker closes a connection that begins with an HTTP request; an admin API answers it.
    """
    try:
        with socket.create_connection((host, port), _SOCKET_SECONDS) as connection, contextlib.suppress(OSError):
            connection.settimeout(_SOCKET_SECONDS)
            connection.sendall(b"HEAD / HTTP/1.0\r\n\r\n")
            if connection.recv(5) == b"HTTP/":
                return "it answers in HTTP, as an admin API does"
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _occupants(admin: PulsarAdmin, named: Arguments) -> Iterator[str]:
    """Yield the consumers of the subscription, or the producers with the name, on each topic."""
    for topic in _names(named["topic"]):
        name = TopicName.parse(topic)
        for part in name.parts(admin.partitions(name)):
            detail = _occupants_of(admin.stats(part), named)
            if detail:
                yield f"{detail} on {part}"


def _occupants_of(stats: TopicStats, named: Arguments) -> str:
    if "subscription_name" in named and (found := stats.subscriptions.get(named["subscription_name"])) is not None:
        there = [f"{one.get('consumerName')!r} at {one.get('address')}" for one in found.raw.get("consumers") or ()]
        kind = f"the {found.type} subscription {named['subscription_name']!r}"
        return f"{kind} has the consumer {', '.join(there)}" if there else ""
    publishers = stats.raw.get("publishers") or ()
    there = [
        f"{one.get('producerName')!r} at {one.get('address')}"
        for one in publishers
        if named.get("producer_name") in (None, one.get("producerName"))
    ]
    return f"occupied by the producer {', '.join(there)}" if there else ""


def check_readable(interruptible: InterruptibleClient, topics: object, schema: object) -> None:
    """Raise if a schema of this library cannot read the topics' latest schemas; a pattern is not checked."""
    if not isinstance(schema, TypedSchema):
        return
    for topic in _names(topics):
        if found := schema.cannot_read(topic, partial(interruptible.schema_of, topic)):
            raise SchemaMismatch(
                f"{schema} cannot read the messages of {topic}: {'; '.join(found)}. Nothing was opened.",
                differences=found,
            )


@contextlib.contextmanager
def schema_error_details(
    interruptible: InterruptibleClient, topics: object, schema: pulsar.schema.Schema
) -> Iterator[None]:
    """Add the differences from the topic's schema to the broker's error of an incompatible schema."""
    try:
        yield
    except SchemaMismatch:
        raise
    except pulsar.IncompatibleSchema as error:
        lines = [one.strip() for one in str(error).splitlines() if one.strip()]
        rejection = lines[0].removeprefix("Pulsar error: ") if lines else "IncompatibleSchema"
        found: list[str] = []
        ours = text_of(schema.schema_info())
        for topic in _names(topics):
            topic_schema = interruptible.schema_of(topic)
            if topic_schema is not None:
                found += explain(ours, topic_schema)
        shown = "; ".join(found) or "none from its latest schema: an older one, or the strategy, forbids this"
        raise SchemaMismatch(
            f"The broker rejects {schema} for {topics} ({rejection}). The differences: {shown}. Nothing was opened.",
            differences=tuple(found),
        ) from error


def _names(topics: object) -> list[str]:
    """Return the topic names of an opening; an empty list for a pattern."""
    if isinstance(topics, str):
        return [topics]
    return list(topics) if isinstance(topics, list | tuple) else []
