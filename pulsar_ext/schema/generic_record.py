"""Records of a schema that the application does not know."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["GenericRecord"]


class GenericRecord(Mapping[str, Any]):
    """The fields of a record by name; mirrors Java's `GenericRecord`.

    Args:
        fields: the values; records within are dicts.
        schema_type: `AVRO`, `JSON` or `PROTOBUF_NATIVE`.
        definition: the schema that it was written with, as text.
        schema_version: the version of that schema on its topic.
    """

    __slots__ = ("_fields", "definition", "schema_type", "schema_version")

    def __init__(self, fields: dict[str, Any], schema_type: str, definition: str, schema_version: int) -> None:
        self._fields, self.schema_type = fields, schema_type
        self.definition, self.schema_version = definition, schema_version

    def __getitem__(self, name: str) -> Any:
        return self._fields[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __repr__(self) -> str:
        return f"GenericRecord({self._fields!r})"
