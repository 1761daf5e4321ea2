"""Real Pulsar brokers for tests: profiles, back ends, fault injection and the pytest plugin.

Names are loaded on first use, because the plugin is part of this package and is loaded in every pytest run of a project
that has it installed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .broker import Broker
    from .cluster import PulsarCluster
    from .container import PulsarContainer
    from .process import PulsarProcess
    from .profiles import PROFILES, PULSAR_VERSION, Profile, get_profile
    from .proxy import FaultProxy
    from .replication import ReplicatedClusters
    from .spark_cluster import SparkCluster
    from .start import start_broker

__all__ = [
    "PROFILES",
    "PULSAR_VERSION",
    "Broker",
    "FaultProxy",
    "Profile",
    "PulsarCluster",
    "PulsarContainer",
    "PulsarProcess",
    "ReplicatedClusters",
    "SparkCluster",
    "get_profile",
    "start_broker",
]

_MODULES = {
    "start_broker": "start",
    "Broker": "broker",
    "PulsarCluster": "cluster",
    "PulsarContainer": "container",
    "PulsarProcess": "process",
    "FaultProxy": "proxy",
    "ReplicatedClusters": "replication",
    "SparkCluster": "spark_cluster",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pulsar_ext.errors import MissingExtra  # noqa: PLC0415  # it loads the official client

    with MissingExtra.named("testing", f"pulsar_ext.testing.{name}"):
        return getattr(import_module(f".{_MODULES.get(name, 'profiles')}", __name__), name)
