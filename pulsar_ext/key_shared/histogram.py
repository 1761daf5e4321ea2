"""How a topic's messages spread over the slots: read it, and draw it with the cuts of a plan."""

from __future__ import annotations

from collections import Counter
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Literal

from pulsar_ext.errors import MissingExtra
from pulsar_ext.ids.message_id import MessageId

from .hash_ranges import KeyHashRanges
from .hashing import SLOTS
from .key_encoding import KeyForms
from .slot_filter import SlotFilter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from pulsar_ext._runtime.context import ClientContext
    from pulsar_ext.reader import Reader

    from .key_encoding import KeyFormsMode

__all__ = ["binned", "draw_histogram", "read_histogram", "weights_of"]

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
    """Read a topic, or all its partitions, from the beginning to its present end, and weigh each slot.

    Args:
        context: of the client that reads.
        topic: must exist.
        by: what a slot's weight is: messages, or bytes of payload.
        key_forms: how to tell a key sent as bytes from base64 text, and an empty key from none; see `KeyForms`.
        progress: called now and then with how many messages have been read.

    Raises:
        NoSuchTopic: there is no such topic.
    """
    every = KeyHashRanges.full()
    slot_of = SlotFilter(every, KeyForms(context.admin_api, key_forms)).slot
    # Of ranges, because that one ends behind what can be read.
    with context.opener.create_reader(topic, MessageId.earliest, key_hash_ranges=every) as reader:
        return _read_weights(reader, slot_of, by, progress)


def _read_weights(
    reader: Reader,
    slot_of: Callable[[Any], int],
    by: Literal["messages", "bytes"],
    progress: Callable[[int], object] | None,
) -> Counter[int]:
    """Read all that is there. Apart from the reader's end: see `_native/locks.py`."""
    weights: Counter[int] = Counter()
    count = 0
    while reader.has_message_available():
        message: Any = reader.read_next()
        inner = message.inner
        weights[slot_of(inner)] += inner.length() if by == "bytes" else 1
        count += 1
        if progress is not None and not count % _REPORT_EVERY:
            progress(count)
    return weights


def weights_of(histogram: Mapping[int, float], parts: Sequence[KeyHashRanges]) -> list[float]:
    """Give the weight of each part of a plan."""
    sums = [0.0, *accumulate(histogram.get(slot, 0) for slot in range(SLOTS))]
    return [sum(sums[one.end + 1] - sums[one.start] for one in part) for part in parts]


def binned(histogram: Mapping[int, float], bins: int) -> list[float]:
    """Give the weight of so many bins of slots that follow each other, of the same size but for one slot."""
    weights = [0.0] * bins
    for slot, weight in histogram.items():
        weights[slot * bins // SLOTS] += weight
    return weights


def draw_histogram(
    histogram: Mapping[int, float], parts: Sequence[KeyHashRanges], title: str, unit: str, path: Path
) -> None:
    """Draw the weight of the slots, in 256 bins, and where the parts begin, into a PNG.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    with MissingExtra.named("bench", "Drawing a PNG"):
        import matplotlib as mpl  # noqa: PLC0415  # an extra, and slow to load
    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415  # likewise

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
        # Narrow parts stand close together, so their labels stand at different heights.
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
