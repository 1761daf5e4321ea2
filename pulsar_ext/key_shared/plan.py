"""Planning key hash ranges of about equal weight (pure)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise

from pulsar_ext.errors import InvalidUse

from .hash_ranges import ALL, KeyHashRange, KeyHashRanges, check_parts
from .hashing import LAST, SLOTS

__all__ = ["plan_key_hash_ranges"]

_BISECTIONS = 60
_ROUNDING = 1e-12


def plan_key_hash_ranges(histogram: Mapping[int, float] | Sequence[float], n: int) -> list[KeyHashRanges]:
    """Cut the slots into `n` ranges of about equal weight, which cover every slot once.

    The heaviest part is as light as neighbouring slots allow, and never heavier than `total / n` plus the heaviest
    slot: a slot, and so a key, cannot be divided.

    Args:
        histogram: the weight of each slot (messages, bytes): a mapping, in which a missing slot weighs nothing, or a
            sequence of 65,536 weights.
        n: how many parts.

    Returns:
        `n` sets of one range each, in order of their slots. Without any weight, all are of the same size.

    Raises:
        InvalidUse: `n` is not 1 to 65,536, a slot does not exist, or a weight is negative.
    """
    check_parts(n, SLOTS)
    weights = _weights(histogram)
    sums = list(accumulate(weights, initial=0.0))
    total = sums[-1]
    if not total:
        return KeyHashRanges.full().split(n)
    cap = _smallest_cap(sums, n, max(weights))
    # Where each cut may lie at the earliest, so that what comes after it fits into the parts that are left.
    earliest = [SLOTS] * (n + 1)
    for part in range(n - 1, 0, -1):
        earliest[part] = bisect_left(sums, sums[earliest[part + 1]] - cap)
    cuts = [0]
    for part in range(1, n):
        last = cuts[-1]
        wanted = sums[last] + (total - sums[last]) / (n - part + 1)
        cut = bisect_left(sums, wanted)
        # The nearer cut, unless it would leave nothing for this part.
        if cut and sums[last] < sums[cut - 1] and wanted - sums[cut - 1] < sums[min(cut, SLOTS)] - wanted:
            cut -= 1
        # Each part has a slot at least, those after it included.
        low = max(earliest[part], last + 1)
        high = min(bisect_right(sums, sums[last] + cap) - 1, SLOTS - (n - part))
        cuts.append(min(max(cut, low), high))
    cuts.append(SLOTS)
    return [KeyHashRanges([KeyHashRange(first, after - 1)]) for first, after in pairwise(cuts)]


def _smallest_cap(sums: list[float], n: int, heaviest: float) -> float:
    """Find the least weight that `n` neighbouring parts can all stay within, by bisection."""

    def fits(cap: float) -> bool:
        at = 0
        for _ in range(n):
            at = bisect_right(sums, sums[at] + cap) - 1
        return at == SLOTS

    share = sums[-1] / n
    low, high = max(share, heaviest), share + heaviest
    if fits(low):
        return low * (1 + _ROUNDING)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high * (1 + _ROUNDING)


def _weights(histogram: Mapping[int, float] | Sequence[float]) -> list[float]:
    if isinstance(histogram, Mapping):
        weights = [0.0] * SLOTS
        for slot, weight in histogram.items():
            if slot not in ALL:
                raise InvalidUse(f"There is no slot {slot!r}: slots are 0 to {LAST}.")
            weights[slot] = weight
    else:
        weights = list(histogram)
        if len(weights) != SLOTS:
            raise InvalidUse(f"A histogram has {SLOTS} weights, one a slot, not {len(weights)}.")
    if not all(0 <= weight < float("inf") for weight in weights):
        raise InvalidUse("The weight of a slot is a number, 0 or more.")
    return weights
