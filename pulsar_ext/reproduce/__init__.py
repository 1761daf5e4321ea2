"""Known defects of the official client, run side by side with `pulsar_ext` on a real broker.

A scenario is a module. Its `run(pulsar, env)` takes the same steps with either client and counts the messages; its
texts are in `scenarios.toml`. The modules that begin with an underscore run the scenarios.
"""

from __future__ import annotations

from ._runner import (
    GROUPS,
    SCENARIOS,
    Row,
    Scenario,
    Site,
    Verdict,
    carry_out,
    causes,
    existing_broker,
    judge,
    own_brokers,
    reproduce,
    select,
    to_json,
    to_markdown,
    to_report,
    to_script,
    to_summary,
    to_table,
    update_markdown,
)
from ._support import Counts, Env, Place

__all__ = [
    "GROUPS",
    "SCENARIOS",
    "Counts",
    "Env",
    "Place",
    "Row",
    "Scenario",
    "Site",
    "Verdict",
    "carry_out",
    "causes",
    "existing_broker",
    "judge",
    "own_brokers",
    "reproduce",
    "select",
    "to_json",
    "to_markdown",
    "to_report",
    "to_script",
    "to_summary",
    "to_table",
    "update_markdown",
]
