"""The topic's schema, compared with that of what is about to be opened, before anything is.

What writers may write is the broker's decision, by the namespace's strategy; where it refuses, the error says what the
difference is. What a reader cannot read is found out here, whatever the strategy lets pass.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any

import pulsar

from pulsar_ext.errors import SchemaMismatch
from pulsar_ext.schema.reading import SchemaText, explain
from pulsar_ext.schema.typed import TypedSchema

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pulsar_ext._native.asking import AskingClient

__all__ = ["check_readable", "telling_differences"]


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
