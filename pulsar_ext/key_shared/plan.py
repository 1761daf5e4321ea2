"""Plans of key hash ranges of about equal weight (pure), from a histogram of a topic's messages over the slots."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Literal

from pulsar_ext._native.messages import InnerMessage
from pulsar_ext._runtime.context import ClientContext
from pulsar_ext.errors import InvalidUse, MissingExtra
from pulsar_ext.ids.message_id import MessageId

from .hash_ranges import ALL, KeyHashRange, KeyHashRanges, SlotFilter, check_parts
from .hashing import LAST, SLOTS, KeyForms, KeyFormsMode
from .reader_group import RangeReader

_BISECTIONS = 60
_ROUNDING = 1e-12


def plan_key_hash_ranges(histogram: Mapping[int, float] | Sequence[float], n: int) -> list[KeyHashRanges]:
    """Return `n` ranges of about equal weight that cover every slot once.

    The heaviest part is as light as neighbouring slots allow, and never heavier than `total / n` plus the heaviest
    slot: a slot, and so a key, cannot be divided.

    Args:
        histogram: the weight of each slot (messages or bytes): a mapping, in which a missing slot has weight 0, or a
            sequence of 65,536 weights.
        n: the number of parts.

    Returns:
        `n` sets of one range each, in order of their slots. If all weights are 0, the parts have equal sizes.

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
    # The earliest position of each cut, so that the rest fits into the remaining parts.
    earliest = [SLOTS] * (n + 1)
    for part in range(n - 1, 0, -1):
        earliest[part] = bisect_left(sums, sums[earliest[part + 1]] - cap)
    cuts = [0]
    for part in range(1, n):
        last = cuts[-1]
        wanted = sums[last] + (total - sums[last]) / (n - part + 1)
        cut = bisect_left(sums, wanted)
        # The nearer cut, unless this part would be empty.
        if cut and sums[last] < sums[cut - 1] and wanted - sums[cut - 1] < sums[min(cut, SLOTS)] - wanted:
            cut -= 1
        # Each part has at least one slot, including the parts after this one.
        low = max(earliest[part], last + 1)
        high = min(bisect_right(sums, sums[last] + cap) - 1, SLOTS - (n - part))
        cuts.append(min(max(cut, low), high))
    cuts.append(SLOTS)
    return [KeyHashRanges([KeyHashRange(first, after - 1)]) for first, after in pairwise(cuts)]


def _smallest_cap(sums: list[float], n: int, heaviest: float) -> float:
    """Return the least weight that none of `n` neighbouring parts has to exceed, by bisection."""

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
                raise InvalidUse(f"A slot must be an int from 0 to {LAST}, got {slot!r}.")
            weights[slot] = weight
    else:
        weights = list(histogram)
        if len(weights) != SLOTS:
            raise InvalidUse(f"A histogram must have {SLOTS} weights, one for each slot, got {len(weights)}.")
    if not all(0 <= weight < float("inf") for weight in weights):
        raise InvalidUse("The weight of each slot must be a finite number >= 0.")
    return weights


_BINS = 256
_REPORT_EVERY = 10_000


def read_histogram(
    context: ClientContext,
    topic: str,
    *,
    by: Literal["messages", "bytes"] = "messages",
    key_forms: KeyFormsMode = "auto",
    progress: Callable[[int], object] | None = None,
) -> Counter[int]:
    """Read a topic or all its partitions up to the current end, and return the weight of each slot."""
    every = KeyHashRanges.full()
    slot_of = SlotFilter(every, KeyForms(context.admin_api, key_forms)).slot
    # A reader of ranges, because its has_message_available() ends before an incomplete message.
    with context.opener.create_reader(topic, MessageId.earliest, key_hash_ranges=every) as reader:
        return _read_weights(reader, slot_of, by, progress)


def _read_weights(
    reader: RangeReader,
    slot_of: Callable[[InnerMessage], int],
    by: Literal["messages", "bytes"],
    progress: Callable[[int], object] | None,
) -> Counter[int]:
    """Read all available messages. Separate from the closing of the reader: see `_native/locks.py`."""
    weights: Counter[int] = Counter()
    for count, message in enumerate(reader, 1):
        weights[slot_of(message.inner)] += message.inner.length() if by == "bytes" else 1
        if progress is not None and not count % _REPORT_EVERY:
            progress(count)
    return weights


def weights_of(histogram: Mapping[int, float], parts: Sequence[KeyHashRanges]) -> list[float]:
    """Return the weight of each part of a plan."""
    sums = [0.0, *accumulate(histogram.get(slot, 0) for slot in range(SLOTS))]
    return [sum(sums[one.end + 1] - sums[one.start] for one in part) for part in parts]


def binned(histogram: Mapping[int, float], bins: int) -> list[float]:
    """Return the weights of `bins` consecutive bins of slots, whose sizes differ by at most one slot."""
    weights = [0.0] * bins
    for slot, weight in histogram.items():
        weights[slot * bins // SLOTS] += weight
    return weights


def draw_histogram(
    histogram: Mapping[int, float], parts: Sequence[KeyHashRanges], title: str, unit: str, path: Path
) -> None:
    """Draw the weight of the slots, in 256 bins, and the starts of the parts, into a PNG."""
    with MissingExtra.named("bench", "Drawing a PNG"):
        import matplotlib as mpl  # noqa: PLC0415  # an extra, and slow to load
    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415  # an extra, and slow to load

    width = SLOTS // _BINS
    bins = binned(histogram, _BINS)
    total = sum(bins)
    figure, axes = plt.subplots(figsize=(10, 4), layout="constrained")
    axes.bar(range(0, SLOTS, width), bins, width=width, align="edge", color="tab:blue")
    highest = max(bins, default=0) or 1
    for index, (part, weight) in enumerate(zip(parts, weights_of(histogram, parts), strict=True)):
        ends = list(part)
        axes.axvline(ends[0].start, color="tab:red", linewidth=1)
        label = f"{index}\n{weight / total:.1%}" if total else str(index)
        middle = (ends[0].start + ends[-1].end) / 2
        # Narrow parts are close together, so their labels have different heights.
        axes.text(
            middle,
            highest * (1.03 + 0.13 * (index % 3)),
            label,
            ha="center",
            va="bottom",
            fontsize=8,
            color="tab:red",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
        )
    axes.set_xlim(0, SLOTS)
    axes.set_ylim(0, highest * 1.5)
    axes.set_xlabel("slot")
    axes.set_ylabel(f"{unit} per {width} slots")
    axes.set_title(title)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120)
    plt.close(figure)
