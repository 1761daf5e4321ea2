"""Checks that an admin API belongs to the cluster that a client is connected to.

An environment variable may reach clients that it is not meant for, and a client that fails over changes its cluster.
The admin API of another cluster with a topic of the same name would return that cluster's ids and cursors, and a skip
would move a cursor there. The binary protocol does not name the cluster, but the cluster's own admin API shows a reader
that the client opens on a topic.
"""

from __future__ import annotations

import contextlib
import copy
import time
import uuid
from collections.abc import Sequence
from urllib.parse import unquote

import pulsar

from pulsar_ext._native.handles import ClientHandle, consumers_of
from pulsar_ext.admin import PulsarAdmin
from pulsar_ext.consumer import Consumer
from pulsar_ext.errors import AdminError, AdminNotFound, AdminRequired, InvalidUse
from pulsar_ext.ids.topic_name import TopicName

_CHECK_SECONDS = 5.0
_POLLS = 10
_POLL_SECONDS = 0.1
_TOPIC_PARTS = 4


class ClusterCheck:
    """Check of each request that it goes to the client's cluster; requests pass while that is unknown.

    At the first request about an existing topic, it opens a reader and checks that the admin API shows it, which takes
    about ten milliseconds, once per client. `origin` is the source of the admin API's URL, for the error.
    """

    def __init__(self, client: ClientHandle, admin: PulsarAdmin, origin: str) -> None:
        self._client, self._admin, self._origin = client, admin.within(_CHECK_SECONDS), origin
        self._same_for: str | None = None
        self._rejected_for: tuple[str, str] | None = None

    def __call__(self, path: str) -> None:
        """Check the cluster before a request to a path below `/admin/v2/`; raise `AdminRequired` if it is another."""
        if (topic := topic_of(path)) is not None:
            self.check(topic)

    @property
    def is_same(self) -> bool:
        """True if the admin API is known to belong to the client's current cluster."""
        return self._same_for == self._service_url()

    def raise_if_other_cluster(self) -> None:
        """Raise if the admin API is known to belong to another cluster, without opening a reader again."""
        if self._rejected_for is not None and self._rejected_for[0] == self._service_url():
            raise AdminRequired(self._rejected_for[1])

    def check(self, topic: TopicName) -> None:
        """Check the cluster by a topic, unless it is known; raise like `__call__()`."""
        if self._same_for == (service_url := self._service_url()):
            return
        self.raise_if_other_cluster()
        if self._exists_there(topic, service_url) and self._shows_reader(topic, service_url):
            self._same_for = service_url

    def _service_url(self) -> str:
        return str(self._client.get_service_info().service_url)

    def _exists_there(self, topic: TopicName, service_url: str) -> bool:
        """Return whether the admin API knows the topic, as one that can have messages."""
        try:
            self._admin.stats(topic)
        except AdminNotFound:
            if {str(topic), str(topic.parent)} & set(_open_topics(self._client)):
                what = f"has no topic {topic}, which this client consumes"
                raise AdminRequired(self._mismatch(what, service_url)) from None
            return False
        except AdminError:  # such as that of a partitioned topic: a request for a partition is checked later
            return False
        return True

    def _shows_reader(self, topic: TopicName, service_url: str) -> bool:
        """Return whether the admin API shows a new reader; False if it cannot be opened or nothing answers."""
        name = f"pulsar-ext-{uuid.uuid4().hex}"
        try:
            reader = pulsar.Client.create_reader(
                self._client, str(topic), pulsar.MessageId.latest, subscription_role_prefix=name
            )
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
        mismatch = self._mismatch(f"shows no reader that this client has just opened on {topic}", service_url)
        self._rejected_for = service_url, mismatch
        raise AdminRequired(mismatch)

    def _is_shown(self, topic: TopicName, name: str) -> bool:
        """Poll for a subscription. A function of its own: see `_native/locks.py`."""
        for _ in range(_POLLS):
            if any(one.startswith(name) for one in self._admin.stats(topic).subscriptions):
                return True
            time.sleep(_POLL_SECONDS)
        return False

    def _mismatch(self, what: str, service_url: str) -> str:
        name = "unknown"
        with contextlib.suppress(AdminError):
            name = " or ".join(self._admin.clusters())  # which needs no permission
            name = self._admin.broker_configuration().get("clusterName", name)
        return (
            f"{self._origin} is {self._admin.url}, the admin API of another cluster ({name}) than that of the client's "
            f"service URL {service_url}: it {what}. Nothing was changed; pass Client(admin=…), with the admin URL of "
            "each cluster if the client fails over."
        )


def topic_of(path: str) -> TopicName | None:
    """Return the topic in a request's path below `/admin/v2/`; None if it has none."""
    parts = path.split("/")
    if len(parts) <= _TOPIC_PARTS or parts[0] not in {"persistent", "non-persistent"}:
        return None
    try:
        return TopicName(parts[0], parts[1], parts[2], unquote(parts[3]))
    except InvalidUse:
        return None


class AdminChoice:
    """Admin APIs of the clusters that one client may be connected to, of which the current cluster's is used."""

    def __init__(self, client: ClientHandle, admins: Sequence[PulsarAdmin], owned: Sequence[PulsarAdmin]) -> None:
        checks = [(admin, ClusterCheck(client, admin, "One of Client(admin=…)")) for admin in admins]
        self._each = [(copy.copy(admin).check_requests(check), check) for admin, check in checks]
        self._client, self._owned = client, owned

    def __call__(self) -> PulsarAdmin:
        """Return the current cluster's; if no consumer identifies it, the first one, whose requests are checked."""
        if len(self._each) == 1:
            return self._each[0][0]
        topics = [TopicName.parse(one) for one in _open_topics(self._client)]
        rejection: AdminRequired | None = None
        candidates = []
        for admin, check in self._each:
            try:
                check.raise_if_other_cluster()
                for topic in [] if check.is_same else topics[:1]:
                    check.check(topic)
            except AdminRequired as error:
                rejection = error
                continue
            if check.is_same:
                return admin
            candidates.append(admin)
        if not candidates and rejection is not None:
            raise rejection
        return candidates[0]

    def close(self) -> None:
        """Close the owned admin APIs."""
        for admin in self._owned:
            admin.close()


def _open_topics(client: ClientHandle) -> list[str]:
    return [one.topic() for one in consumers_of(client) if isinstance(one, Consumer)]
