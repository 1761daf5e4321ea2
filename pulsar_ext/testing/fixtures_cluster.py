"""The fixture of a whole cluster; whatever it needs is imported when it is used."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from .run import RUN, told_plainly

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .cluster import PulsarCluster
    from .profiles import Profile

__all__ = ["_pulsar_clusters", "pulsar_cluster"]


@pytest.fixture(scope="session")
def _pulsar_clusters(pytestconfig: pytest.Config) -> Iterator[Callable[[str | Profile], PulsarCluster]]:
    """Give this process's cluster of a profile; it has one at a time, for the sake of memory."""
    run = pytestconfig.stash[RUN]
    backend, version = run.option("backend"), run.option("pulsar_version")
    with contextlib.ExitStack() as running:
        made: dict[str, PulsarCluster] = {}

        def cluster_of(profile: str | Profile) -> PulsarCluster:
            key = repr(profile)
            if key not in made:
                running.close()
                made.clear()
                with told_plainly():
                    from .cluster import PulsarCluster  # noqa: PLC0415  # only for those who use it

                    made[key] = running.enter_context(PulsarCluster(profile, backend=backend, version=version))
            return made[key]

        yield cluster_of


@pytest.fixture
def pulsar_cluster(
    request: pytest.FixtureRequest, _pulsar_clusters: Callable[[str | Profile], PulsarCluster]
) -> Iterator[PulsarCluster]:
    """Give a cluster of two brokers and two bookies, to kill, restart, roll and cut by name; whole again afterwards.

    It runs in what `--pulsar-backend` says. Its profile is that of the run, or
    `@pytest.mark.parametrize("pulsar_cluster", ["dedup"], indirect=True)`. Under xdist give the tests that use it one
    group, or each worker starts one: `@pytest.mark.xdist_group("cluster")`.
    """
    run = request.config.stash[RUN]
    cluster = _pulsar_clusters(getattr(request, "param", None) or run.option("profile") or "plain")
    yield cluster
    with told_plainly():
        cluster.heal()
