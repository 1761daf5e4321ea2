"""The core tier uses every public method of the blocking client; the asyncio methods only forward to them."""

from __future__ import annotations

import ast
from pathlib import Path

import pulsar_ext

_CLASSES = [
    pulsar_ext.Client,
    pulsar_ext.Producer,
    pulsar_ext.Consumer,
    pulsar_ext.Reader,
    pulsar_ext.PulsarAdmin,
    pulsar_ext.TableView,
]
_INTERNAL = {"fetched_ahead", "subscribed_to"}
_ELSEWHERE = {
    "check_requests": "is a hook of the admin API for its own tests",
    "get_service_info": "needs two clusters: testing/test_replication.py",
    "schema_compatibility_strategy": "is read like the namespace policies, through one table",
    "set_schema_validation_enforced": "is called by a remedy of the doctor: doctor/test_losses.py",
    "send_dead_letter": "is called by `process()`",
    "use": "sends any request, and is used by all other methods",
    "within": "sets a time limit that unit tests prove",
}


def _used():
    """Return the attributes that core tests, helpers of their modules, and helper modules use."""
    names = set()
    for path in (Path(__file__).parents[2] / "integration").rglob("*.py"):
        tree = ast.parse(path.read_text())
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        core = [node for node in functions if any("mark.core" in ast.unparse(one) for one in node.decorator_list)]
        if path.name.startswith("test_"):
            helpers = [node for node in functions if not node.name.startswith("test_")] if core else []
            nodes = core + helpers
        else:
            nodes = [tree]
        names |= {one.attr for node in nodes for one in ast.walk(node) if isinstance(one, ast.Attribute)}
    return names


def test_core_uses_every_public_method(fault_module):
    """A public method that no core test calls is named, unless another list excludes it."""
    methods = fault_module("interrupt_methods")
    internal = {name for name, why in methods._EXCLUDED[""].items() if why == methods._OWN} | _INTERNAL
    public = {name for kind in _CLASSES for name in dir(kind) if not name.startswith("_")}
    assert sorted(public - internal - _used() - _ELSEWHERE.keys()) == []
