"""Numbers and findings as text, on a page and in a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pulsar_ext.doctor.findings import Finding
from pulsar_ext.ids.text import counted

from .survey import TopicMap

_STEP = 1024
_AGES = ((86_400, "d"), (3_600, "h"), (60, "min"))


def bytes_text(size: float) -> str:
    """Return a size in binary units."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < _STEP:
            return f"{size:,.0f} {unit}" if unit == "B" else f"{size:,.1f} {unit}"
        size /= _STEP
    return f"{size:,.1f} TiB"


def age_text(seconds: float) -> str:
    """Return an age in its largest unit."""
    for length, unit in _AGES:
        if seconds >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.1f} s"


def rate_text(messages: float) -> str:
    """Return a rate in messages per second."""
    return f"{messages:,.0f} msg/s" if messages >= 10 or not messages else f"{messages:.1f} msg/s"  # noqa: PLR2004


def batches_text(topic: TopicMap) -> list[str]:
    """Return the kinds of the inspected entries, a line for each kind."""
    kinds = list(topic.kinds.values())
    lines = []
    if single := kinds.count("message"):
        lines.append(counted(single, "single message"))
    if batches := sum(topic.batches.values()):
        messages = sum(size * count for size, count in topic.batches.items())
        lines.append(f"{counted(batches, 'batch')} of {messages / batches:,.1f} on average")
    if chunks := kinds.count("chunk"):
        lines.append(f"{counted(chunks, 'chunk')} of {counted(len(topic.chunked), 'message')}")
    return lines


def inspected_text(topic: TopicMap) -> str:
    """Return the number of inspected entries."""
    count = len(topic.kinds)
    return "all inspected" if count == topic.entries else f"{count:,} of {topic.entries:,} inspected"


def findings_text(findings: Sequence[Finding]) -> str:
    """Return the numbers of errors and warnings."""
    errors = sum(one.severity == "error" for one in findings)
    parts = [(errors, "error"), (len(findings) - errors, "warning")]
    return ", ".join(counted(number, what) for number, what in parts if number) or "no problems found"


def evidence_text(value: object) -> str:
    """Return a JSON value without its punctuation, with a line for each object in a list."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name.replace('_', ' ')} {evidence_text(one)}" for name, one in value.items())
    if isinstance(value, list | tuple):
        nested = any(isinstance(one, Mapping | list | tuple) for one in value)
        return ("\n" if nested else ", ").join(map(evidence_text, value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "unknown" if value is None else str(value)
