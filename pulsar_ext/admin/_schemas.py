"""Operations on schemas; mirrors `org.apache.pulsar.client.admin.Schemas`. `N` is `namespaces/{tenant}/{namespace}`."""

# ruff: noqa: D417  # the session is not the caller's to give, so no docstring lists it

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from pulsar_ext.ids.topic_name import TopicName

from ._core import Request, Session, nothing
from ._namespaces import namespace_path

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ._core import Answer

__all__ = [
    "SchemaInfo",
    "schema",
    "schema_compatibility_strategy",
    "schemas",
    "set_schema_compatibility_strategy",
    "upload_schema",
]


@dataclass(frozen=True, slots=True)
class SchemaInfo:
    """A topic's schema: its version, its type (`JSON`, `AVRO`, `STRING`, …), and its definition as text."""

    version: int
    type: str
    data: str
    properties: Mapping[str, str]

    @classmethod
    def from_json(cls, answer: Mapping[str, Any]) -> Self:
        """Read the answer of `GET …/schema`."""
        return cls(answer["version"], answer["type"], answer.get("data") or "", dict(answer.get("properties") or {}))


def _path(topic: str | TopicName) -> str:
    return f"schemas/{TopicName.parse(topic).rest_path.partition('/')[2]}"


async def schema(session: Session, topic: str | TopicName, version: int | None = None) -> SchemaInfo:
    """Get a topic's schema, its last version by default: `GET schemas/{tenant}/{namespace}/{topic}/schema`.

    Raises:
        AdminNotFound: the topic has no schema, or no such version.
    """
    path = f"{_path(topic)}/schema"
    if version is not None:
        path += f"/{version}"
    return await session.send(Request("GET", path, lambda answer: SchemaInfo.from_json(answer.json())))


async def schemas(session: Session, topic: str | TopicName) -> Mapping[int, SchemaInfo]:
    """Get every version of a topic's schema that there is, by its number: `GET schemas/{…}/schemas`.

    It is empty without a schema, and where it was deleted; versions that follow have higher numbers.
    """

    def parse(answer: Answer) -> dict[int, SchemaInfo]:
        found = map(SchemaInfo.from_json, answer.json()["getSchemaResponses"])
        return {one.version: one for one in found}

    return await session.send(Request("GET", f"{_path(topic)}/schemas", parse))


async def upload_schema(
    session: Session, topic: str | TopicName, kind: str, data: str, properties: Mapping[str, str] | None = None
) -> int:
    """Give a topic a schema, if it has not this one already: `POST schemas/{tenant}/{namespace}/{topic}/schema`.

    Args:
        topic: with or without partitions.
        kind: `AVRO`, `JSON`, `KEY_VALUE`, …
        data: the definition as text.
        properties: of the schema, which for `KEY_VALUE` say what it is made of.

    Returns:
        Its version.

    Raises:
        AdminConflict: it does not go with the topic's schema; the error has the broker's words.
    """
    body = {"type": kind, "schema": data, "properties": dict(properties or {})}
    request = Request(
        "POST", f"{_path(topic)}/schema", lambda answer: int(answer.json()["version"]["version"]), body=body
    )
    return await session.send(replace(request, idempotent=True))


async def schema_compatibility_strategy(session: Session, namespace: str) -> str:
    """Get what a new schema has to be compatible with: `GET N/schemaCompatibilityStrategy`."""
    path = f"{namespace_path(namespace)}/schemaCompatibilityStrategy"
    return await session.send(Request("GET", path, lambda answer: str(answer.json())))


async def set_schema_compatibility_strategy(session: Session, namespace: str, value: str) -> None:
    """Set it, as `BACKWARD` or `FULL_TRANSITIVE`: `PUT N/schemaCompatibilityStrategy`."""
    path = f"{namespace_path(namespace)}/schemaCompatibilityStrategy"
    await session.send(Request("PUT", path, nothing, body=value, idempotent=True))


async def set_schema_validation_enforced(session: Session, namespace: str, value: bool) -> None:
    """Set whether topics that have a schema refuse producers without one: `POST N/schemaValidationEnforced`."""
    path = f"{namespace_path(namespace)}/schemaValidationEnforced"
    await session.send(Request("POST", path, nothing, body=value, idempotent=True))
