"""Looking up the version of a schema that a message was written with, at the message's own cluster only."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from pulsar_ext.errors import SchemaMismatch
from pulsar_ext.ids.topic_name import TopicName

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulsar_ext.admin import PulsarAdmin
    from pulsar_ext.admin import SchemaInfo as StoredSchema

__all__ = ["VersionLookup"]

T = TypeVar("T")


class VersionLookup:
    """The place where a schema object looks up versions; official ones take it for their C++ client.

    Args:
        ask: asks the C++ client for a version of a topic's schema.
        connected_to: returns the number of the cluster that the client is connected to.
        number: of the messages' cluster.
    """

    def __init__(self, ask: Callable[[str, int], Any], connected_to: Callable[[], int], number: int) -> None:
        self._ask, self._connected_to, self._number = ask, connected_to, number

    def at(self, number: int) -> VersionLookup:
        """Return the lookup for messages of another cluster."""
        return VersionLookup(self._ask, self._connected_to, number)

    def get_schema_info(self, topic: str, version: int) -> Any:
        """Return a version of a topic's schema, as the C++ client does.

        Raises:
            SchemaMismatch: the client is connected to another cluster, where that version is of another schema.
            pulsar.PulsarException: the broker cannot be asked now, or knows no such version.
        """
        return self._checked(partial(self._ask, topic, version), topic, version)

    def stored(self, admin_api: Callable[[], PulsarAdmin], topic: str, version: int) -> StoredSchema:
        """Return a version of a topic's schema, as the admin API does, which knows those of keys and values.

        Raises:
            SchemaMismatch: the client is connected to another cluster, where that version is of another schema.
            AdminRequired, AdminError: the version could not be asked for.
        """
        parent = str(TopicName.parse(topic).parent)
        return self._checked(lambda: admin_api().schema(parent, version), topic, version)

    def _checked(self, ask: Callable[[], T], topic: str, version: int) -> T:
        self._refuse_another(topic, version)
        found = ask()
        self._refuse_another(topic, version)  # it may have been the answer of another cluster
        return found

    def _refuse_another(self, topic: str, version: int) -> None:
        if self._connected_to() != self._number:
            raise SchemaMismatch(
                f"Version {version} of the schema of {topic} was not looked up before the client connected to another "
                "cluster, whose versions are others. The message was not decoded; data() has its bytes.",
                differences=(),
            )
