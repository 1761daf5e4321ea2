"""What is known of an opening that the C++ client only says failed: whether the broker listens, and who is there.

The C++ client tries again until its time is over, and then says `TimeOut`, whether nothing listens or the broker
refuses the credentials. A socket and the admin API know more.
"""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING, Any

import pulsar

from pulsar_ext.errors import AdminError, PulsarExtError
from pulsar_ext.ids.topic_name import TopicName

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pulsar_ext._runtime.context import ClientContext
    from pulsar_ext.admin import PulsarAdmin, TopicStats


_SOCKET_SECONDS, _ADMIN_SECONDS = 1.0, 2.0
_MOST_ADDRESSES = 3
_NOTHING = "Nothing was opened"
_PORTS = {"pulsar": 6650, "pulsar+ssl": 6651}
_UNREACHED = (pulsar.Timeout, pulsar.ConnectError, pulsar.LookupError)


@contextlib.contextmanager
def telling_what_is_known(
    context: ClientContext, service_url: Callable[[], str], named: dict[str, Any]
) -> Iterator[None]:
    """Have an error of an opening say what the socket and the admin API know of its cause.

    Args:
        context: of the client.
        service_url: returns the URL that the client connects to.
        named: the arguments of the opening by name.
    """
    try:
        yield
    except PulsarExtError:
        raise
    except pulsar.InvalidTopicName:
        for topic in _topics(named):
            TopicName.parse(topic)
        raise
    except _UNREACHED as error:
        if _NOTHING not in str(error):  # an opening within this one has said it
            _add(error, _why_unreached(context, service_url()))
        raise
    except (pulsar.ConsumerBusy, pulsar.ProducerBusy) as error:
        with contextlib.suppress(PulsarExtError):
            admin = context.admin_api().within(_ADMIN_SECONDS)
            if said := "; ".join(_who_is_there(admin, named)):
                _add(error, f"{said}. {_NOTHING}")
        raise


def addresses_of(service_url: str) -> list[tuple[str, int]]:
    """Return host and port of each broker that a service URL names, the usual port where it names none (pure)."""
    scheme, _, rest = service_url.partition("://")
    found = []
    for one in rest.partition("/")[0].split(","):
        host, separator, port = one.rpartition(":")
        whole = separator and port.isdigit()
        found.append((host if whole else one, int(port) if whole else _PORTS.get(scheme, _PORTS["pulsar"])))
    return [(host.strip("[]"), port) for host, port in found]


def _add(error: BaseException, known: str) -> None:
    """Have an error say more: the same object, so that it shows one traceback."""
    error.args = (f"{error}: {known}",)


def _why_unreached(context: ClientContext, service_url: str) -> str:
    """Say what a connection to each address gives, and if one listens, what the admin API says."""
    addresses = addresses_of(service_url)[:_MOST_ADDRESSES]
    problems = {f"{host}:{port}": problem_of(host, port) for host, port in addresses}
    silent = [f"{address}: {problem}" for address, problem in problems.items() if problem]
    if len(silent) == len(problems):
        return f"no broker listens ({'; '.join(silent)}). {_NOTHING}; start it, or correct the service URL"
    listening = ", ".join(address for address, problem in problems.items() if not problem)
    said = "so does the admin API"
    try:
        context.admin_api().within(_ADMIN_SECONDS).clusters()
    except AdminError as error:
        said = f"the admin API says HTTP {error.status}: {error.reason}" if error.status else "the admin API does not"
    except PulsarExtError:
        said = "there is no admin API to ask"
    return f"{listening} listens, and {said}. {_NOTHING}; check credentials, TLS, and the broker's log"


def problem_of(host: str, port: int) -> str:
    """Say why no broker can be reached there; empty if something listens that may be one.

    A broker ends a connection that begins with a request of HTTP; where the admin API listens, it is answered.
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


def _who_is_there(admin: PulsarAdmin, named: dict[str, Any]) -> Iterator[str]:
    """Name the consumers of the subscription, or the producer of the name, on each of the topics."""
    for topic in _topics(named):
        name = TopicName.parse(topic)
        for part in name.parts(admin.partitions(name)):
            said = _who_is_on(admin.stats(part), named)
            if said:
                yield f"{said} on {part}"


def _topics(named: dict[str, Any]) -> list[str]:
    """Return the names of the topics of an opening; none for a pattern."""
    topics = [named["topic"]] if isinstance(named["topic"], str) else named["topic"]
    return topics if isinstance(topics, list) else []


def _who_is_on(stats: TopicStats, named: dict[str, Any]) -> str:
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
    return f"there is the producer {', '.join(there)}" if there else ""
