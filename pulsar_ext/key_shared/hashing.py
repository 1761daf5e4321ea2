"""The slot of a key, exactly as the broker computes it: one key at a time, or arrays of keys.

The broker numbers slots in two ways: `key_slot` is what fixed ranges mean, `auto_split_slot` what its own ranges mean
where it splits the slots itself. Mirrors `StickyKeyConsumerSelectorUtils.makeStickyKeyHash` and
`Commands.resolveStickyKey`. `key_slots`, for arrays of keys, needs numpy.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any

import mmh3

from pulsar_ext.errors import InvalidUse

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    from numpy.typing import NDArray

__all__ = ["LAST", "SLOTS", "auto_split_slot", "key_slot", "key_slots", "sticky_key"]

SLOTS = 65_536
"""How many slots there are: 0 to 65,535, of which the broker never assigns slot 0 to a key."""

LAST = SLOTS - 1

_POSITIVE = 0x7FFF_FFFF
"""The bits of a hash that count: Java's `Murmur3_32Hash` gives no negative one."""

_BLOCK = 8192
"""Keys hashed in step: so few that every intermediate array stays in the processor's cache."""

_WORD = 4
_ASCII = 128


def key_slot(key: str | bytes) -> int:
    """Compute the slot of a key, 1 to 65,535: exactly the one that the broker computes for fixed ranges.

    Murmur3 (32 bits, seed 0), of which 16 bits count; the broker moves slot 0 to 1, because 0 means "no hash" to it.
    Where the broker splits the slots itself it numbers them in another way: `auto_split_slot`.

    Args:
        key: a text, hashed as UTF-8, or bytes, hashed as they are. A key that was sent as bytes shows in Python as
            base64 text; decode that first.

    Raises:
        TypeError: it is neither text nor bytes.
        UnicodeEncodeError: the text cannot be written as UTF-8.
    """
    slot: int = _hash(key) & LAST
    return slot or 1


def auto_split_slot(key: str | bytes) -> int:
    """Compute the slot of a key, 1 to 65,535, as the broker numbers them where it splits the slots itself.

    It takes the hash modulo 65,535 and counts from 1 (`ConsistentHashingStickyKeyConsumerSelector`). A broker with
    `subscriptionKeySharedUseConsistentHashing=false` numbers them as `key_slot` does; `KeyCover.slot_of` knows which.

    Args:
        key: as for `key_slot`.

    Raises:
        TypeError, UnicodeEncodeError: as `key_slot`.
    """
    slot: int = (_hash(key) & _POSITIVE) % LAST + 1
    return slot


def _hash(key: str | bytes) -> int:
    # mmh3 itself ends the process at a text that cannot be written as UTF-8.
    try:
        found: int = mmh3.hash(key.encode() if isinstance(key, str) and not key.isascii() else key)
    except TypeError:
        raise TypeError(f"A key must be a str or bytes, not {key!r}.") from None
    return found


def sticky_key(
    partition_key: str | None,
    *,
    ordering_key: bytes | None = None,
    is_base64: bool = False,
    producer_name: str = "",
    sequence_id: int = 0,
) -> bytes:
    """Give the bytes whose slot is the message's, Java's `Commands.resolveStickyKey`.

    Args:
        partition_key: the key as it is stored; None for a message without one. An empty key is a key.
        ordering_key: counts before the key; None for a message without one.
        is_base64: whether the key was sent as bytes, which are stored as base64.
        producer_name: the producer's name, which with the sequence id stands in for a missing key.
        sequence_id: the message's own sequence id.

    Raises:
        InvalidUse: `is_base64`, but the key is not base64.
    """
    if ordering_key is not None:
        return ordering_key
    if partition_key is None:
        return f"{producer_name}-{sequence_id}".encode()
    if not is_base64:
        return partition_key.encode()
    try:
        return base64.b64decode(partition_key, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidUse(f"The key {partition_key!r} is marked as base64 and is not: {error}.") from None


def key_slots(keys: Any) -> NDArray[np.uint16]:
    """Compute the slot of each key, as `key_slot` does.

    Args:
        keys: an Arrow array or chunked array of text or binary, dictionary-encoded or not; a numpy array of texts or
            bytes; or any iterable of `str` and `bytes`.

    Returns:
        A numpy array of the slots.

    Raises:
        InvalidUse: numpy is not there, a key is null, or the array holds neither text nor bytes. A null has no slot of
            its own: it depends on the message's producer and sequence id.
    """
    try:
        import numpy as np  # noqa: PLC0415  # optional, and only needed here
    except ImportError as error:
        raise InvalidUse("key_slots() needs numpy: pip install numpy. key_slot() does without.") from error
    if type(keys).__module__.partition(".")[0] == "pyarrow":
        slots: NDArray[np.uint16] = _of_arrow(np, keys)
    elif isinstance(keys, np.ndarray):
        slots = _of_numpy(np, keys)
    else:
        slots = _one_by_one(np, keys)
    return slots


def _of_arrow(np: Any, keys: Any) -> Any:
    import pyarrow as pa  # noqa: PLC0415  # the caller has it, for it made the array

    if isinstance(keys, pa.ChunkedArray):
        slots = [_of_arrow(np, chunk) for chunk in keys.chunks]
        return np.concatenate(slots) if slots else np.empty(0, np.uint16)
    if keys.null_count:
        raise InvalidUse(f"{keys.null_count} of {len(keys)} keys are null: a message without a key has no fixed slot.")
    if isinstance(keys, pa.DictionaryArray):
        return _of_arrow(np, keys.dictionary)[keys.indices.to_numpy(zero_copy_only=False)]
    kind = keys.type
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind):
        keys = keys.cast(pa.large_string() if pa.types.is_string_view(kind) else pa.large_binary())
        kind = keys.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        width: Any = np.int32
    elif pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        width = np.int64
    else:
        raise InvalidUse(f"Keys are text or binary, not {kind}.")
    if not len(keys):
        return np.empty(0, np.uint16)
    _, offsets, data = keys.buffers()
    bounds = np.frombuffer(offsets, width)[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
    payload = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    return _of_bytes(np, payload, bounds[:-1], np.diff(bounds))


def _of_numpy(np: Any, keys: Any) -> Any:
    flat = np.ascontiguousarray(keys).reshape(-1)
    if flat.dtype.kind == "U":
        points = flat.view(np.uint32)
        if not (points < _ASCII).all():
            return _one_by_one(np, flat.tolist()).reshape(keys.shape)
        lengths = np.strings.str_len(flat)
        data, width = points.astype(np.uint8), flat.dtype.itemsize // 4
    elif flat.dtype.kind == "S":
        lengths = np.strings.str_len(flat)
        data, width = flat.view(np.uint8), flat.dtype.itemsize
    elif flat.dtype.kind in "OT":
        return _one_by_one(np, flat.tolist()).reshape(keys.shape)
    else:
        raise InvalidUse(f"Keys are text or bytes, not {flat.dtype}.")
    starts = np.arange(len(flat), dtype=np.int64) * width
    return _of_bytes(np, data, starts, lengths).reshape(keys.shape)


def _one_by_one(np: Any, keys: Iterable[str | bytes]) -> Any:
    keys = list(keys)
    try:
        hashes = np.fromiter(map(mmh3.hash if _are_ascii(keys) else _hash, keys), np.int64)
    except TypeError as error:
        raise InvalidUse(f"Keys are str or bytes: {error}.") from error
    return _slots(np, hashes)


def _are_ascii(keys: list[Any]) -> bool:
    """Whether all are text of ASCII alone, which needs no look at each."""
    try:
        return all(map(str.isascii, keys))
    except TypeError:
        return False


def _slots(np: Any, hashes: Any) -> Any:
    slots = (hashes & LAST).astype(np.uint16)
    return np.maximum(slots, 1, out=slots)


def _of_bytes(np: Any, data: Any, starts: Any, lengths: Any) -> Any:
    """Hash the keys that lie in `data` (bytes) at `starts`, `lengths` bytes each."""
    # A word may begin at any byte, so the last key needs room behind it.
    padded = np.concatenate([data, np.zeros(_WORD, np.uint8)])
    words = np.ndarray(len(data) + 1, "<u4", buffer=padded, strides=(1,))
    out = np.empty(len(starts), np.uint16)
    with np.errstate(over="ignore"):
        for first in range(0, len(starts), _BLOCK):
            part = slice(first, first + _BLOCK)
            out[part] = _slots(np, _murmur3(np, words, starts[part], lengths[part]))
    return out


def _murmur3(np: Any, words: Any, starts: Any, lengths: Any) -> Any:
    """Hash a block of keys; `words[i]` is the 32-bit number that begins at byte `i`."""
    whole = lengths // _WORD
    hashes = np.zeros(len(starts), np.uint32)
    shared = int(whole.min())
    for at in range(int(whole.max())):
        if at < shared:
            hashes = _mixed(np, hashes, words[starts + at * _WORD])
        else:
            longer = np.flatnonzero(whole > at)
            hashes[longer] = _mixed(np, hashes[longer], words[starts[longer] + at * _WORD])
    rest = (1 << (lengths % _WORD * 8)) - 1
    hashes ^= _scrambled(np, words[starts + whole * _WORD] & rest.astype(np.uint32))
    hashes ^= lengths.astype(np.uint32)
    hashes ^= hashes >> 16
    hashes *= np.uint32(0x85EBCA6B)
    hashes ^= hashes >> 13
    hashes *= np.uint32(0xC2B2AE35)
    hashes ^= hashes >> 16
    return hashes


def _mixed(np: Any, hashes: Any, block: Any) -> Any:
    hashes = hashes ^ _scrambled(np, block)
    hashes = (hashes << 13) | (hashes >> 19)
    hashes *= np.uint32(5)
    hashes += np.uint32(0xE6546B64)
    return hashes


def _scrambled(np: Any, block: Any) -> Any:
    block = block * np.uint32(0xCC9E2D51)
    block = (block << 15) | (block >> 17)
    block *= np.uint32(0x1B873593)
    return block
