"""Selection of a run's tests: the core, the rest of the suite in parts of equal length, or every combination (pure).

A *tier* is `core`, `rest`, `all` (both), or `every`, which adds every combination of parameters and tests marked
`on_demand`. A part has whole modules of a tier, whose durations are in `durations.json`.

    python tests/integration/tiers.py REPORT.xml...     # record the durations of reports of the rest
"""

from __future__ import annotations

import json
import re
import sys
import xml.etree.ElementTree as ET
from collections import Counter, defaultdict
from pathlib import Path

TIERS = ("core", "rest", "all", "every")
DURATIONS = Path(__file__).parent / "durations.json"
"""Seconds of each module in a run of the rest of the suite; they balance the parts."""
STARTING = {"cluster": 90.0, "mtls": 20.0, "spark": 30.0, "spark-cluster": 60.0}
"""Seconds of starting what the modules of a kind share, which few parts should start."""
CLIENTS = ("client_factory", "admin_class")
"""Fixtures that return either client's objects."""
_UNKNOWN_SECONDS = 10.0


# -- tiers -------------------------------------------------------------------------------------------------------------


def select(items, tier):
    """Return the items of a tier, in their order."""
    if tier == "every":
        return items
    tests = defaultdict(list)
    for item in items:
        tests[item.nodeid.partition("[")[0]].append(item)
    kept = set()
    for same in tests.values():
        core = _core(same)
        kept |= core if tier in {"core", "all"} else set()
        kept |= _cover(same, core) if tier in {"rest", "all"} else set()
    return [item for item in items if item in kept]


def order(items):
    """Return the items in the order of a run: slow tests of the core first, or it would end with one busy worker.

    Spark's are the last of these: while all brokers start, its Python may miss Spark's timeout of ten seconds. Those
    through a cluster or mutual TLS come after two thirds of the others: the Java machines that they start take
    processor time from all later tests.
    """
    slow, spark, late, others = [], [], [], []
    by_kind = {"spark": spark, "spark-cluster": spark, "cluster": late, "mtls": late}
    for item in items:
        is_slow = any("slow" in mark.kwargs for mark in item.iter_markers("core"))
        (by_kind.get(_kind(item), slow) if is_slow else others).append(item)
    middle = len(others) * 2 // 3
    return [*slow, *spark, *others[:middle], *late, *others[middle:]]


def _core(same):
    """Return the core's items of one test: the first, one for each value of `each`, and a twin if `awaited` is set."""
    mark = same[0].get_closest_marker("core")
    if mark is None:
        return set()
    blocking, awaited = _by_client(same)
    each = mark.kwargs.get("each")
    first = {each and id(params(item)[each]): item for item in reversed(blocking)}
    return {*first.values(), *(awaited[:1] if mark.kwargs.get("awaited") or not blocking else ())}


def _cover(same, core):
    """Return items of one test that have, with the core's, every value of its parameters, and the first awaited one."""
    blocking, awaited = _by_client([item for item in same if not item.get_closest_marker("on_demand")])
    enough = [item for item in awaited[:1] if item not in core and not item.get_closest_marker("twin_on_demand")]
    values = {item: _values(item) for item in blocking}
    times = Counter(value for item in core & values.keys() for value in values[item])
    missing = set().union(*values.values()) - times.keys()
    while missing:
        best = max(
            blocking, key=lambda item: (len(values[item] & missing), -sum(times[value] for value in values[item]))
        )
        enough.append(best)
        missing -= values[best]
        times.update(values[best])
    return set(enough)


def _by_client(same):
    """Return the items with the blocking client, and those with the asyncio client."""
    awaited = [item for item in same if "awaited" in map(params(item).get, CLIENTS)]
    return [item for item in same if item not in awaited], awaited


def params(item):
    """Return the parameters of an item by name."""
    return item.callspec.params if getattr(item, "callspec", None) else {}


def _values(item):
    """Return the values of an item's parameters; those of one `parametrize` are one."""
    by_name = params(item)
    together = [[name.strip() for name in _names(mark)] for mark in item.iter_markers("parametrize")]
    alone = [[name] for name in by_name if not any(name in names for names in together)]
    return {(*names, *(id(by_name[name]) for name in names)) for names in together + alone} or {()}


def _names(mark):
    names = mark.args[0] if mark.args else mark.kwargs["argnames"]
    return names.split(",") if isinstance(names, str) else names


# -- parts -------------------------------------------------------------------------------------------------------------


def parse_part(text):
    """Return `3/8` as `(3, 8)`.

    Raises:
        ValueError: the form is invalid.
    """
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    part, parts = map(int, found.groups()) if found else (0, 0)
    if not 1 <= part <= parts:
        raise ValueError(f"a part is K/N with 1 <= K <= N, such as 3/8, got {text!r}")
    return part, parts


def take_part(items, part, parts, durations):
    """Return the items of one of `parts` parts of about equal duration; modules stay whole.

    The modules of an expensive kind stay together if they fit into a part.
    """
    kinds = {}
    for item in items:
        kinds.setdefault(module_of(item), _kind(item))
    chosen = {name for name, where in divide(kinds, parts, durations).items() if where == part - 1}
    return [item for item in items if module_of(item) in chosen]


def divide(kinds, parts, durations):
    """Return the part of each module, from 0.

    Args:
        kinds: the expensive kind of each module, a key of `STARTING`, or None.
        parts: number of parts.
        durations: seconds of modules; ten by default.
    """
    seconds = {module: durations.get(module, _UNKNOWN_SECONDS) for module in kinds}
    full = (sum(seconds.values()) + sum(STARTING[kind] for kind in {*kinds.values()} - {None})) / parts
    loads, where, started = [0.0] * parts, {}, defaultdict(set)
    by_kind = Counter()
    for module, kind in kinds.items():
        by_kind[kind] += seconds[module]
    # Expensive kinds first, then long modules: short ones fill the gaps. Names make the order deterministic.
    order = sorted(kinds, key=lambda module: (kinds[module] is None, -by_kind[kinds[module]], -seconds[module], module))
    for module in order:
        kind = kinds[module]

        def cost(part, kind=kind, module=module):
            begun = kind is None or kind in started[part]
            if begun and kind is not None and loads[part] + seconds[module] <= full:
                return (0, part)
            return (1, loads[part] + (0 if begun else STARTING[kind]), part)

        best = min(range(parts), key=cost)
        loads[best] += seconds[module] + (0 if kind is None or kind in started[best] else STARTING[kind])
        started[best].add(kind)
        where[module] = best
    return where


def module_of(item):
    """Return the path of an item's module below this folder, with its kind of broker if it goes through one."""
    through = params(item).get("pulsar_through")
    path = Path(item.path).relative_to(Path(__file__).parent).as_posix()
    return path if through in {None, "standalone"} else f"{path} through {through}"


def _kind(item):
    """Return the expensive kind of an item, a key of `STARTING`, or None."""
    through, group = params(item).get("pulsar_through"), item.get_closest_marker("xdist_group")
    name = group.args[0] if group else ""
    for kind in (through, name, name.partition("-")[0]):
        if kind in STARTING:
            return kind
    return None


def read_durations():
    """Return the recorded seconds of each module."""
    return json.loads(DURATIONS.read_text()) if DURATIONS.exists() else {}


def record(reports, durations):
    """Return the durations, replaced by those in pytest's reports in JUnit's format."""
    found = Counter()
    for report in reports:
        for case in ET.parse(report).getroot().iter("testcase"):
            through = case.find("properties/property[@name='through']")
            path = case.get("classname").removeprefix("tests.integration.")
            module = "/".join(part for part in path.split(".") if not part.startswith("Test")) + ".py"
            found[module if through is None else f"{module} through {through.get('value')}"] += float(case.get("time"))
    return durations | {module: round(seconds, 1) for module, seconds in sorted(found.items())}


if __name__ == "__main__":
    DURATIONS.write_text(json.dumps(record(sys.argv[1:], read_durations()), indent=0, sort_keys=True) + "\n")
