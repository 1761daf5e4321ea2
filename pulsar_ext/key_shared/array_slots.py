"""Slots of arrays of keys, hashed together by numpy; see `hashing.key_slots()`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

import mmh3
import numpy as np

from pulsar_ext.errors import InvalidUse

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    Keys: TypeAlias = pa.Array | pa.ChunkedArray | NDArray[Any] | Iterable[str | bytes]
    Slots: TypeAlias = NDArray[np.uint16]
    Hashes: TypeAlias = NDArray[np.uint32]
    Offsets: TypeAlias = NDArray[np.int64]
    Octets: TypeAlias = NDArray[np.uint8]


_BLOCK = 8192
"""Number of keys hashed together, small enough that every intermediate array fits into the processor's cache."""

_WORD = 4
_LAST = 0xFFFF
_ASCII = 128


def slots_of(keys: Keys, hash_of: Callable[[str | bytes], int]) -> Slots:
    """Return the slot of each key; `hash_of` hashes one that numpy cannot."""
    if type(keys).__module__.partition(".")[0] == "pyarrow":
        return _of_arrow(keys)
    return _of_numpy(keys, hash_of) if isinstance(keys, np.ndarray) else _one_by_one(keys, hash_of)


def _of_arrow(keys: pa.Array | pa.ChunkedArray) -> Slots:
    import pyarrow as pa  # noqa: PLC0415  # installed, because the caller made the array with it

    if isinstance(keys, pa.ChunkedArray):
        slots = [_of_arrow(chunk) for chunk in keys.chunks]
        return np.concatenate(slots) if slots else np.empty(0, np.uint16)
    if keys.null_count:
        raise InvalidUse(f"{keys.null_count} of {len(keys)} keys are null: a message without a key has no fixed slot.")
    if isinstance(keys, pa.DictionaryArray):
        of_each: Slots = _of_arrow(keys.dictionary)[keys.indices.to_numpy(zero_copy_only=False)]
        return of_each
    kind = keys.type
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind):
        keys = keys.cast(pa.large_string() if pa.types.is_string_view(kind) else pa.large_binary())
        kind = keys.type
    is_large = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    if not (is_large or pa.types.is_string(kind) or pa.types.is_binary(kind)):
        raise InvalidUse(f"Keys must be text or binary, got {kind}.")
    if not len(keys):
        return np.empty(0, np.uint16)
    _, offsets, data = keys.buffers()
    bounds = np.frombuffer(offsets, np.int64 if is_large else np.int32)[
        keys.offset : keys.offset + len(keys) + 1
    ].astype(np.int64)
    payload = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    return _of_bytes(payload, bounds[:-1], np.diff(bounds))


def _of_numpy(keys: NDArray[Any], hash_of: Callable[[str | bytes], int]) -> Slots:
    flat = np.ascontiguousarray(keys).reshape(-1)
    if flat.dtype.kind in "OT":
        return _one_by_one(flat.tolist(), hash_of).reshape(keys.shape)
    if flat.dtype.kind == "U":
        points = flat.view(np.uint32)
        if not (points < _ASCII).all():
            return _one_by_one(flat.tolist(), hash_of).reshape(keys.shape)
        data, width = points.astype(np.uint8), flat.dtype.itemsize // 4
    elif flat.dtype.kind == "S":
        data, width = flat.view(np.uint8), flat.dtype.itemsize
    else:
        raise InvalidUse(f"Keys must be text or bytes, got {flat.dtype}.")
    starts = np.arange(len(flat), dtype=np.int64) * width
    return _of_bytes(data, starts, np.strings.str_len(flat)).reshape(keys.shape)


def _one_by_one(keys: Iterable[str | bytes], hash_of: Callable[[str | bytes], int]) -> Slots:
    keys = list(keys)
    try:
        hashes = np.fromiter(map(mmh3.hash if _are_ascii(keys) else hash_of, keys), np.int64)
    except TypeError as error:
        raise InvalidUse(f"Keys must be str or bytes: {error}.") from error
    return _slots(hashes)


def _are_ascii(keys: list[Any]) -> bool:
    """Return whether all keys are ASCII text, without a step of Python for each."""
    try:
        return all(map(str.isascii, keys))
    except TypeError:
        return False


def _slots(hashes: Hashes | Offsets) -> Slots:
    slots = (hashes & _LAST).astype(np.uint16)
    return np.maximum(slots, 1, out=slots)


def _of_bytes(data: Octets, starts: Offsets, lengths: Offsets) -> Slots:
    """Hash the keys in `data` that begin at `starts`, `lengths` bytes each."""
    # A word may begin at any byte, so the last key needs padding.
    padded = np.concatenate([data, np.zeros(_WORD, np.uint8)])
    words: Hashes = np.ndarray(len(data) + 1, "<u4", buffer=padded, strides=(1,))
    out = np.empty(len(starts), np.uint16)
    with np.errstate(over="ignore"):
        for first in range(0, len(starts), _BLOCK):
            part = slice(first, first + _BLOCK)
            out[part] = _slots(_murmur3(words, starts[part], lengths[part]))
    return out


def _murmur3(words: Hashes, starts: Offsets, lengths: Offsets) -> Hashes:
    """Hash a block of keys; `words[i]` is the 32-bit number that begins at byte `i`."""
    whole = lengths // _WORD
    hashes = np.zeros(len(starts), np.uint32)
    shared = int(whole.min())
    for at in range(int(whole.max())):
        if at < shared:
            hashes = _mixed(hashes, words[starts + at * _WORD])
        else:
            longer = np.flatnonzero(whole > at)
            hashes[longer] = _mixed(hashes[longer], words[starts[longer] + at * _WORD])
    rest = (1 << (lengths % _WORD * 8)) - 1
    hashes ^= _scrambled(words[starts + whole * _WORD] & rest.astype(np.uint32))
    hashes ^= lengths.astype(np.uint32)
    hashes ^= hashes >> 16
    hashes *= np.uint32(0x85EBCA6B)
    hashes ^= hashes >> 13
    hashes *= np.uint32(0xC2B2AE35)
    hashes ^= hashes >> 16
    return hashes


def _mixed(hashes: Hashes, block: Hashes) -> Hashes:
    hashes = hashes ^ _scrambled(block)
    hashes = (hashes << np.uint32(13)) | (hashes >> np.uint32(19))
    hashes *= np.uint32(5)
    hashes += np.uint32(0xE6546B64)
    return hashes


def _scrambled(block: Hashes) -> Hashes:
    block = block * np.uint32(0xCC9E2D51)
    block = (block << np.uint32(15)) | (block >> np.uint32(17))
    block *= np.uint32(0x1B873593)
    return block
