"""Topic names: parsing, validation and quoting (pure).

Mirrors `org.apache.pulsar.common.naming.TopicName`, without its pre-2.0 form `tenant/cluster/namespace/topic`: like a
current broker, this module rejects a slash in the last part of a name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Self
from urllib.parse import quote

from pulsar_ext.errors import InvalidTopic

_DOMAINS = ("persistent", "non-persistent")
_SCALABLE = ("topic", "segment")
_ENTITY = re.compile(r"[-=:.\w]+", re.ASCII)  # org.apache.pulsar.common.naming.NamedEntity
_PARTITION = re.compile(r"(.+)-partition-(0|[1-9][0-9]*)", re.ASCII | re.DOTALL)
_MAX_PARTITION = 2**31 - 1


@dataclass(frozen=True, slots=True, order=True)
class TopicName:
    """A topic's full name in four parts, or `InvalidTopic`; its text is `persistent://tenant/namespace/name`."""

    domain: str
    tenant: str
    namespace: str
    name: str

    def __post_init__(self) -> None:
        if self.domain not in _DOMAINS:
            raise InvalidTopic(f"Invalid topic domain {self.domain!r}: expected 'persistent' or 'non-persistent'")
        for what, value in (("tenant", self.tenant), ("namespace", self.namespace)):
            if not _ENTITY.fullmatch(value):
                raise InvalidTopic(f"Invalid {what} {value!r} in topic name: use letters, digits and any of -=:._ only")
        if not self.name or "/" in self.name:
            raise InvalidTopic(f"Invalid topic name {self.name!r}: it must not be empty and must not contain a slash")
        try:
            self.name.encode()
        except UnicodeEncodeError as error:
            raise InvalidTopic(f"Invalid topic name {self.name!r}: it cannot be written as UTF-8") from error

    @classmethod
    def parse(cls, text: str | TopicName) -> Self:
        """Return the name of `topic`, in `persistent://public/default`, `tenant/namespace/topic` or a full name."""
        if isinstance(text, cls):
            return text
        if not isinstance(text, str) or not text:
            raise InvalidTopic(f"Invalid topic name {text!r}: expected a non-empty str")
        return cls._parsed(text)

    @classmethod
    @lru_cache(maxsize=1024)  # each consumer parses the same few names repeatedly
    def _parsed(cls, text: str) -> Self:
        domain, separator, rest = text.partition("://") if "://" in text else ("persistent", "", text)
        if domain in _SCALABLE:
            raise InvalidTopic(
                f"{text!r} is a scalable topic of Pulsar 5, or a segment of one, unsupported by the C++ client: use "
                "a persistent topic, or Pulsar 5's own client. Nothing was opened."
            )
        parts = rest.split("/")
        if len(parts) == 1 and not separator:
            return cls("persistent", "public", "default", text)
        if len(parts) != 3:  # noqa: PLR2004  # tenant, namespace, name
            raise InvalidTopic(
                f"Invalid topic name {text!r}: expected 'topic', 'tenant/namespace/topic' or "
                "'persistent://tenant/namespace/topic'; a topic's own name cannot contain a slash"
            )
        return cls(domain, *parts)

    def __str__(self) -> str:
        return f"{self.domain}://{self.tenant}/{self.namespace}/{self.name}"

    @property
    def namespace_name(self) -> str:
        """Name of the namespace in the admin API, `tenant/namespace`."""
        return f"{self.tenant}/{self.namespace}"

    @property
    def is_persistent(self) -> bool:
        """True if messages are stored, so that ledgers, positions and cursors exist."""
        return self.domain == "persistent"

    @property
    def partition_index(self) -> int:
        """Number after `-partition-`, or -1 if this is not a partition's name."""
        match = _PARTITION.fullmatch(self.name)
        index = int(match[2]) if match else -1
        return index if index <= _MAX_PARTITION else -1

    @property
    def is_partition(self) -> bool:
        """True for the name of a partition, such as `…-partition-3`."""
        return self.partition_index >= 0

    @property
    def parent(self) -> TopicName:
        """The partition's partitioned topic; the topic itself if it is not a partition."""
        if not self.is_partition:
            return self
        return TopicName(self.domain, self.tenant, self.namespace, self.name.rpartition("-partition-")[0])

    def partition(self, index: int) -> TopicName:
        """Return the name of the partition `index` of this topic, which is not a partition itself."""
        if self.is_partition or not 0 <= index <= _MAX_PARTITION:
            raise InvalidTopic(f"{self} has no partition {index!r}")
        return TopicName(self.domain, self.tenant, self.namespace, f"{self.name}-partition-{index}")

    def parts(self, count: int) -> list[TopicName]:
        """Return the names of `count` partitions, as in `PulsarAdmin.partitions()`; for 0, the topic itself."""
        return [self.partition(index) for index in range(count)] or [self]

    @property
    def rest_path(self) -> str:
        """Path for the admin REST API: `domain/tenant/namespace/name`, percent-encoded."""
        if {self.tenant, self.namespace, self.name} & {".", ".."}:
            raise InvalidTopic(f"{self} cannot be addressed over REST: '.' and '..' are steps in a URL's path")
        # The broker decodes with java.net.URLDecoder, which reads a plus as a space, so every character is quoted.
        return f"{self.domain}/{self.tenant}/{self.namespace}/{quote(self.name, safe='')}"
