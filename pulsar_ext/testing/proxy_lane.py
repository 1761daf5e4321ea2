"""One direction of a proxied connection, as a pure core: bytes in, and which of them may leave when.

Time is handed in, so nothing here waits: latency and jitter decide when a piece is due, the bandwidth when the next one
may follow, and a trap at which byte of which frame the connection breaks. Order is kept, as TCP keeps it.
"""

from __future__ import annotations

import random
import struct
import threading
from collections import deque
from dataclasses import dataclass, field
from typing import Final, Literal

from pulsar_ext.errors import InvalidUse

__all__ = ["TO_BROKER", "TO_CLIENT", "Conditions", "Direction", "FrameTrap", "Frames", "Lane", "Way"]

Direction = Literal["to_broker", "to_client"]
TO_BROKER: Final = "to_broker"
TO_CLIENT: Final = "to_client"

# What may be on the way at once: with a second of latency, a megabyte a second.
_ROOM_BYTES: Final = 1 << 20
_LENGTH: Final = struct.Struct(">I")
# A limited bandwidth is given out in pieces of this length, so that a low one does not come in one burst a second.
_SLICE_SECONDS: Final = 0.02


@dataclass(frozen=True)
class Conditions:
    """What one direction of the network is like.

    Args:
        latency: seconds that each piece takes.
        jitter: up to so many seconds more, by chance.
        bytes_per_second: how much passes on each connection; None for no limit.
        silent: whether nothing passes.

    Raises:
        InvalidUse: a number is negative, or the bandwidth is not above 0.
    """

    latency: float = 0.0
    jitter: float = 0.0
    bytes_per_second: float | None = None
    silent: bool = False

    def __post_init__(self) -> None:
        if self.latency < 0 or self.jitter < 0:
            raise InvalidUse(f"latency and jitter are seconds from 0 on, not {self.latency} and {self.jitter}")
        if self.bytes_per_second is not None and self.bytes_per_second <= 0:
            raise InvalidUse(
                f"a bandwidth is above 0 bytes a second, not {self.bytes_per_second}: pause() lets nothing pass"
            )


class FrameTrap:
    """Breaks connections amid a frame: so many times, each time at a frame that is longer than that.

    Args:
        after: how many bytes of the frame still pass, its length field included.
        times: how many frames are broken.

    Raises:
        InvalidUse: `after` is negative, or `times` is not 1 or more.
    """

    def __init__(self, after: int, times: int = 1) -> None:
        if after < 0 or times < 1:
            raise InvalidUse(f"a frame breaks after 0 bytes or more, once or more, not after {after}, {times} times")
        self.after = after
        self._times = times
        self._lock = threading.Lock()

    @property
    def left(self) -> int:
        """How many frames will still be broken."""
        return self._times

    def claim(self, length: int) -> bool:
        """Return whether a frame of that many bytes in all is to be broken; what was claimed is used up."""
        with self._lock:
            if length <= self.after or self._times == 0:
                return False
            self._times -= 1
            return True


@dataclass
class Way:
    """One direction's settings, which all connections of a proxy share; the proxy alone changes them."""

    conditions: Conditions = field(default_factory=Conditions)
    trap: FrameTrap | None = None


class Frames:
    """Finds where frames begin in a stream: four bytes say a length, big-endian, and as many bytes follow."""

    def __init__(self) -> None:
        self._base = 0
        self._next = 0
        self._part = b""

    def feed(self, data: bytes) -> list[tuple[int, int]]:
        """Take the next bytes; give the offset and the whole length of each frame whose length is known now."""
        data = self._part + data
        found = []
        at, end = self._next - self._base, len(data)
        while at + _LENGTH.size <= end:
            whole = _LENGTH.size + _LENGTH.unpack_from(data, at)[0]
            found.append((self._base + at, whole))
            at += whole
        self._next = self._base + at
        # What is there of the next frame's length stays for the next time.
        self._part = data[at:]
        self._base += end - len(self._part)
        return found


class Lane:
    """What is on its way in one direction of one connection.

    Args:
        way: what this direction is like.
        dice: where jitter comes from.
    """

    def __init__(self, way: Way, dice: random.Random | None = None) -> None:
        self._way = way
        self._dice = dice or random.Random()  # noqa: S311  # no secret
        self._frames = Frames()
        self._pieces: deque[tuple[float, memoryview]] = deque()
        self._held = 0
        self._left_bytes = 0
        self._last_due = 0.0
        self._free_at = 0.0
        self._break_at: int | None = None
        self._ended = False

    @property
    def wants_more(self) -> bool:
        """Whether the next bytes may be read."""
        return not (self._ended or self._way.conditions.silent or self._held >= _ROOM_BYTES)

    @property
    def is_broken(self) -> bool:
        """Whether all that may leave has left, because a trap has closed: the connection is to be reset."""
        return self._break_at is not None and self._left_bytes >= self._break_at

    @property
    def is_done(self) -> bool:
        """Whether the source has ended, and all of it has left."""
        return self._ended and not self._pieces

    def accept(self, data: bytes, now: float) -> None:
        """Take what the source sent; no bytes at all are its end."""
        if not data:
            self._ended = True
            return
        conditions = self._way.conditions
        for offset, length in self._frames.feed(data):
            trap = self._way.trap
            if trap is not None and self._break_at is None and trap.claim(length):
                self._break_at = offset + trap.after
        delay = conditions.latency + self._dice.uniform(0.0, conditions.jitter)
        # Later bytes do not overtake earlier ones, however the dice fall.
        self._last_due = max(self._last_due, now + delay)
        self._pieces.append((self._last_due, memoryview(data)))
        self._held += len(data)

    def take(self, now: float) -> memoryview:
        """Give what may leave now; nothing if it is too early, or the direction is silent or broken."""
        if not self._may_leave(now):
            return memoryview(b"")
        data = self._pieces[0][1]
        rate = self._way.conditions.bytes_per_second
        most = len(data) if rate is None else max(1, int(rate * _SLICE_SECONDS))
        if self._break_at is not None:
            most = min(most, self._break_at - self._left_bytes)
        return data[:most]

    def left(self, count: int, now: float) -> None:
        """Note that so many bytes of what `take` gave have left."""
        due, data = self._pieces.popleft()
        if count < len(data):
            self._pieces.appendleft((due, data[count:]))
        self._held -= count
        self._left_bytes += count
        rate = self._way.conditions.bytes_per_second
        if rate is not None:
            self._free_at = max(self._free_at, now) + count / rate

    def wait(self, now: float) -> float | None:
        """Return the seconds until something may leave; None if only an event can bring that about."""
        if not self._pieces or self._way.conditions.silent or self.is_broken:
            return None
        return max(0.0, self._pieces[0][0] - now, self._paced_until() - now)

    def _may_leave(self, now: float) -> bool:
        return self.wait(now) == 0.0

    def _paced_until(self) -> float:
        return 0.0 if self._way.conditions.bytes_per_second is None else self._free_at
