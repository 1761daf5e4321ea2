"""Rows that are a key and a value, in the columns of a send (pure): as Java's `KeyValueSchema` writes them."""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from pulsar_ext.errors import InvalidUse
from pulsar_ext.schema.key_value import with_length

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["BASE64_KEYS", "pair_columns"]

BASE64_KEYS: Final = "keys_are_base64"
"""The column of a send whose keys are bytes in base64."""


def pair_columns(batch: Any, encoding: str) -> dict[str, Any]:
    """Return the columns of a send that are made of keys and values.

    Args:
        batch: an Arrow record batch with the columns `__key` and `value`.
        encoding: "INLINE" or "SEPARATED".

    Raises:
        InvalidUse: there are no keys, or a separated one is null.
    """
    if "__key" not in batch.schema.names:
        raise InvalidUse("Option keyValueEncoding needs the column __key, which is missing. Nothing was sent.")
    keys, values = batch.column("__key").cast(pa.binary()), batch.column("value").cast(pa.binary())
    if encoding == "INLINE":
        pairs: Iterable[tuple[bytes | None, bytes | None]] = zip(keys.to_pylist(), values.to_pylist(), strict=True)
        contents = [with_length(key) + with_length(value) for key, value in pairs]
        return {"content": pa.array(contents, pa.binary()), "partition_key": None}
    if keys.null_count:
        raise InvalidUse(
            f"Column __key is null in {keys.null_count} rows, and a separated key cannot be. Nothing was sent."
        )
    coded = keys.dictionary_encode()
    texts = pa.array([b64encode(one).decode() for one in coded.dictionary.to_pylist()], pa.string())
    return {"partition_key": texts.take(coded.indices), BASE64_KEYS: pa.repeat(pa.scalar(value=True), len(keys))}
