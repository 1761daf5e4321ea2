"""Whether an admin API that nobody gave to this client is that of the client's own cluster.

An environment variable reaches clients that it was not meant for. The admin API of another cluster that has a topic of
the same name would answer for ids and cursors of that one, and a skip would move a cursor there. No message of the
binary protocol names the cluster; but what the client opens on a topic, its own cluster's admin API shows.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pulsar

from pulsar_ext.consumer import Consumer
from pulsar_ext.errors import AdminError, AdminNotAllowed, AdminNotFound, AdminRequired, InvalidUse
from pulsar_ext.ids.topic_name import TopicName

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pulsar_ext.admin import PulsarAdmin

__all__ = ["SameCluster", "checked_admin", "topic_of"]

_CHECK_SECONDS = 5.0
_LOOKS = 10
_LOOK_SECONDS = 0.1
_TOPIC_PARTS = 4


class SameCluster:
    """Lets requests pass once it is known that they go to the client's cluster; what is not known passes, too.

    It is asked before each request. At the first one about a topic that exists, it opens a reader and looks whether the
    admin API shows it; that takes some ten milliseconds, once for a client.

    Args:
        admin: the admin API, which asks without this check.
        origin: where its URL comes from, for the error.
        service_url: gives the client's, which another cluster's replaces where the client fails over to it.
        open_reader: opens a reader at the end of a topic, whose subscription's name begins as it is told.
        open_topics: gives the topics that the client's consumers are on.
    """

    def __init__(
        self,
        admin: PulsarAdmin,
        origin: str,
        service_url: Callable[[], str],
        open_reader: Callable[[str, str], Any],
        open_topics: Callable[[], Iterable[str]],
    ) -> None:
        self._admin = admin
        self._origin = origin
        self._service_url = service_url
        self._open_reader = open_reader
        self._open_topics = open_topics
        self._same_for: str | None = None
        self._refused_for: tuple[str, str] | None = None

    def __call__(self, path: str) -> None:
        """Look, if it is not known yet, before a request to this path below `/admin/v2/` is sent.

        Raises:
            AdminRequired: it is another cluster's; nothing was sent.
        """
        topic = topic_of(path)
        if topic is None or self._same_for == (service_url := self._service_url()):
            return
        if self._refused_for is not None and self._refused_for[0] == service_url:
            raise AdminRequired(self._refused_for[1])  # what a reader has shown once is not looked for again
        if self._exists_there(topic, service_url) and self._shows_reader(topic, service_url):
            self._same_for = service_url

    def _exists_there(self, topic: TopicName, service_url: str) -> bool:
        """Whether the admin API knows the topic, as one that messages can be on."""
        try:
            self._admin.stats(topic)
        except AdminNotFound:
            if {str(topic), str(topic.parent)} & set(self._open_topics()):
                what = f"has no topic {topic}, which this client consumes"
                raise AdminRequired(self._told(what, service_url)) from None
            return False
        except AdminNotAllowed:  # it has partitions: the request for one of them will come here as well
            return False
        except AdminError:
            return False
        return True

    def _shows_reader(self, topic: TopicName, service_url: str) -> bool:
        """Open a reader, and look for it; False if it cannot be opened or the admin API does not answer."""
        name = f"pulsar-ext-{uuid.uuid4().hex}"
        try:
            reader = self._open_reader(str(topic), name)
        except pulsar.PulsarException:
            return False
        try:
            if self._is_shown(topic, name):
                return True
            if not reader.is_connected():
                return False
        except (AdminError, pulsar.PulsarException):
            return False
        finally:
            with contextlib.suppress(pulsar.PulsarException, ValueError):
                reader.close()
        told = self._told(f"shows no reader that this client has just opened on {topic}", service_url)
        self._refused_for = service_url, told
        raise AdminRequired(told)

    def _is_shown(self, topic: TopicName, name: str) -> bool:
        """Look for a subscription again and again. Apart from the reader's end: see `_native/locks.py`."""
        for _ in range(_LOOKS):
            if any(one.startswith(name) for one in self._admin.stats(topic).subscriptions):
                return True
            time.sleep(_LOOK_SECONDS)
        return False

    def _told(self, what: str, service_url: str) -> str:
        name = "unknown"
        with contextlib.suppress(AdminError):
            name = " or ".join(self._admin.clusters())  # which anybody may ask for
            name = self._admin.broker_configuration().get("clusterName", name)
        return (
            f"{self._origin} is {self._admin.url}, the admin API of another cluster ({name}) than that of the client's "
            f"service URL {service_url}: it {what}. Nothing was changed; give Client(admin=…)."
        )


def topic_of(path: str) -> TopicName | None:
    """Read which topic a request is about from its path below `/admin/v2/`; None if it is about none."""
    parts = path.split("/")
    if len(parts) <= _TOPIC_PARTS or parts[0] not in {"persistent", "non-persistent"}:
        return None
    try:
        return TopicName(parts[0], parts[1], parts[2], unquote(parts[3]))
    except InvalidUse:
        return None


def checked_admin(client: Any, admin: PulsarAdmin, origin: str) -> PulsarAdmin:
    """Have an admin API checked that nobody gave to a client; `origin` is where its URL comes from."""
    plain = admin.within(_CHECK_SECONDS)

    def service_url() -> str:
        return str(client.get_service_info().service_url)

    def open_witness(topic: str, name: str) -> pulsar.Reader:
        return pulsar.Client.create_reader(client, topic, pulsar.MessageId.latest, subscription_role_prefix=name)

    def open_topics() -> list[str]:
        return [one.topic() for one in client.handles() if isinstance(one, Consumer)]

    return admin.check_requests(SameCluster(plain, origin, service_url, open_witness, open_topics))
