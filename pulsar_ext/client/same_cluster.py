"""Whether an admin API is that of the cluster that a client is connected to, and which one of several is.

An environment variable reaches clients that it was not meant for, and a client that fails over leaves its cluster. The
admin API of another cluster that has a topic of the same name would answer for ids and cursors of that one, and a skip
would move a cursor there. No message of the
binary protocol names the cluster; but what the client opens on a topic, its own cluster's admin API shows.
"""

from __future__ import annotations

import contextlib
import copy
import time
import uuid
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pulsar

from pulsar_ext.consumer import Consumer
from pulsar_ext.errors import AdminError, AdminNotAllowed, AdminNotFound, AdminRequired, InvalidUse
from pulsar_ext.ids.topic_name import TopicName

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pulsar_ext.admin import PulsarAdmin


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
        if (topic := topic_of(path)) is not None:
            self.check(topic)

    @property
    def is_same(self) -> bool:
        """If this is known to be the admin API of the cluster that the client is connected to."""
        return self._same_for == self._service_url()

    def refuse_another(self) -> None:
        """Refuse to ask it if it is known to be another cluster's: a reader that has shown it once is not opened again.

        Raises:
            AdminRequired: it is another cluster's.
        """
        if self._refused_for is not None and self._refused_for[0] == self._service_url():
            raise AdminRequired(self._refused_for[1])

    def check(self, topic: TopicName) -> None:
        """Look, if it is not known yet, by a topic; raises as a call."""
        if self._same_for == (service_url := self._service_url()):
            return
        self.refuse_another()
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
            f"service URL {service_url}: it {what}. Nothing was changed; give Client(admin=…), with the admin URL of "
            "each cluster if the client fails over."
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


class AdminChoice:
    """The admin APIs of the clusters that one client may be connected to, of which that of the present one is used.

    Args:
        client: the client.
        admins: one for each cluster. Their requests are checked, so that none goes to another cluster.
        owned: those of them that end with the client.
    """

    def __init__(self, client: Any, admins: Sequence[PulsarAdmin], owned: Sequence[PulsarAdmin]) -> None:
        checks = [_check_of(client, admin, "One of Client(admin=…)") for admin in admins]
        self._each = [
            (copy.copy(admin).check_requests(check), check) for admin, check in zip(admins, checks, strict=True)
        ]
        self._open_topics, self._owned = partial(_open_topics, client), owned

    def __call__(self) -> PulsarAdmin:
        """Return the admin API of the cluster that the client is connected to.

        Where nothing is open to tell it by, it is the first one, whose requests are checked.

        Raises:
            AdminRequired: each one is of another cluster.
        """
        if len(self._each) == 1:
            return self._each[0][0]
        topics = [TopicName.parse(one) for one in self._open_topics()]
        refused: AdminRequired | None = None
        left = []
        for admin, check in self._each:
            try:
                check.refuse_another()
                for topic in [] if check.is_same else topics[:1]:
                    check.check(topic)
            except AdminRequired as error:
                refused = error
                continue
            if check.is_same:
                return admin
            left.append(admin)
        if not left and refused is not None:
            raise refused
        return left[0]

    def close(self) -> None:
        """Close those that end with the client."""
        for admin in self._owned:
            admin.close()


def checked_admin(client: Any, admin: PulsarAdmin, origin: str) -> PulsarAdmin:
    """Have an admin API checked that nobody gave to a client; `origin` is where its URL comes from."""
    return admin.check_requests(_check_of(client, admin, origin))


def _open_topics(client: Any) -> list[str]:
    """Return the topics that a client consumes."""
    return [one.topic() for one in client._handles_() if isinstance(one, Consumer)]


def _check_of(client: Any, admin: PulsarAdmin, origin: str) -> SameCluster:
    plain = admin.within(_CHECK_SECONDS)

    def service_url() -> str:
        return str(client.get_service_info().service_url)

    def open_witness(topic: str, name: str) -> pulsar.Reader:
        return pulsar.Client.create_reader(client, topic, pulsar.MessageId.latest, subscription_role_prefix=name)

    return SameCluster(plain, origin, service_url, open_witness, partial(_open_topics, client))
