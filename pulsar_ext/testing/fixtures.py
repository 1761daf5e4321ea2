"""Fixtures of the pytest plugin; they import what they need when they are used."""

from __future__ import annotations

import contextlib
import uuid
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import pytest

from .plugin import RUN, reason_only

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pulsar_ext
    import pulsar_ext.asyncio
    from pulsar_ext.admin import PulsarAdmin

    from .broker import Broker, Reachable
    from .cluster import PulsarCluster
    from .profiles import Profile
    from .proxy import FaultProxy
    from .shared import SharedBroker
    from .tenancy import Tenancy


C = TypeVar("C", bound="pulsar_ext.Client | pulsar_ext.asyncio.Client")
C_co = TypeVar("C_co", bound="pulsar_ext.Client | pulsar_ext.asyncio.Client", covariant=True)


class BrokerFactory(Protocol):
    """Type of the fixture `pulsar_broker_factory`."""

    def __call__(self, profile: str | Profile | None = None) -> SharedBroker:
        """Return the run's broker of the profile."""
        ...


class NamespaceFactory(Protocol):
    """Type of the fixture `pulsar_namespace_factory`."""

    def __call__(self, broker: Reachable | None = None) -> str:
        """Return this test's namespace on the broker."""
        ...


class TopicFactory(Protocol):
    """Type of the fixture `pulsar_topic_factory`."""

    def __call__(self, name: str = "topic", *, partitions: int = 0, broker: Reachable | None = None) -> str:
        """Return an unused topic name."""
        ...


class ClientFactory(Protocol[C_co]):
    """Type of the fixtures `pulsar_client_factory` and `pulsar_async_client_factory`."""

    def __call__(self, broker: Reachable | None = None, service_url: str | None = None, **options: Any) -> C_co:
        """Return a client that is closed after the test."""
        ...


# -- brokers ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def pulsar_through(request: pytest.FixtureRequest) -> str:
    """Return the kind of the other fixtures' brokers: `standalone`, `mtls` or `cluster`, by `--pulsar-through`.

    For single tests use `@pytest.mark.parametrize("pulsar_through", ["standalone", "mtls", "cluster"], indirect=True)`.
    """
    return getattr(request, "param", None) or request.config.stash[RUN].option("through") or "standalone"


@pytest.fixture(scope="session")
def pulsar_broker_factory(pytestconfig: pytest.Config, pulsar_through: str) -> BrokerFactory:
    """Return the run's broker of a profile, `pulsar_broker_factory("dedup")`, started on first use.

    The profile is a name or a `pulsar_ext.testing.Profile`; by default that of `--pulsar-profile`.
    """
    run = pytestconfig.stash[RUN]

    def broker_of(profile: str | Profile | None = None) -> SharedBroker:
        with reason_only():
            from .profiles import get_profile  # noqa: PLC0415  # loaded on use
            from .shared import SharedBroker  # noqa: PLC0415  # loaded on use

            chosen = get_profile(profile or run.option("profile") or "plain")
            broker = SharedBroker(run.source, chosen.through(pulsar_through))
            key = repr(broker.profile)
            if key not in run.brokers:
                run.brokers[key] = broker
                # Its log during the start does not belong to this test.
                run.log_starts[key] = broker.log_offset()
        return run.brokers[key]

    return broker_of


@pytest.fixture(scope="session")
def pulsar_broker(pulsar_broker_factory: BrokerFactory) -> SharedBroker:
    """Return the run's broker, which all tests and workers share."""
    return pulsar_broker_factory()


@pytest.fixture
def pulsar_own_broker(pytestconfig: pytest.Config, pulsar_through: str) -> Iterator[Callable[..., Broker]]:
    """Start a broker for this test only, to kill or restart: `pulsar_own_broker("plain", settings={…})`."""
    run = pytestconfig.stash[RUN]
    with contextlib.ExitStack() as brokers:

        def own(profile: str | Profile = "plain", **options: Any) -> Broker:
            options.setdefault("version", run.option("pulsar_version"))
            with reason_only():
                from .profiles import get_profile  # noqa: PLC0415  # loaded on use
                from .start import start_broker  # noqa: PLC0415  # loaded on use

                chosen = get_profile(profile).through(pulsar_through)
                broker = start_broker(run.option("backend"), chosen, **options)
            brokers.callback(broker.stop)
            return broker

        yield own


# -- isolation -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def _pulsar_tenants(pytestconfig: pytest.Config) -> Iterator[Callable[[Reachable], str]]:
    """Return this process's tenant on a broker: one per run and worker, deleted at the end."""
    worker = getattr(pytestconfig, "workerinput", {}).get("workerid", "main")
    tenant = f"test-{uuid.uuid4().hex[:8]}-{worker}"
    made: dict[str, Reachable] = {}

    def tenant_on(broker: Reachable) -> str:
        if broker.admin_url not in made:
            with reason_only(), _tenancy(broker) as tenancy:
                tenancy.create_tenant(tenant)
            made[broker.admin_url] = broker
        return tenant

    yield tenant_on
    for broker in made.values():
        if broker.is_running():  # a stopped cluster has no address
            with _tenancy(broker) as tenancy:
                tenancy.delete_tenant(tenant)


@pytest.fixture
def pulsar_namespace_factory(
    pulsar_broker_factory: BrokerFactory, _pulsar_tenants: Callable[[Reachable], str]
) -> Iterator[NamespaceFactory]:
    """Return this test's namespace, `tenant/name`, on a broker, by default on `pulsar_broker`; deleted afterwards."""
    name = f"ns-{uuid.uuid4().hex[:12]}"
    made: dict[str, tuple[Reachable, str]] = {}

    def namespace_on(broker: Reachable | None = None) -> str:
        where = broker or pulsar_broker_factory()
        if where.admin_url not in made:
            namespace = f"{_pulsar_tenants(where)}/{name}"
            with reason_only(), _tenancy(where) as tenancy:
                tenancy.create_namespace(namespace)
            made[where.admin_url] = where, namespace
        return made[where.admin_url][1]

    yield namespace_on
    for broker, namespace in made.values():
        if broker.is_running():
            with _tenancy(broker) as tenancy:
                problem = tenancy.delete_namespace(namespace)
            if problem is not None:
                pytest.fail(problem, pytrace=False)


@pytest.fixture
def pulsar_namespace(pulsar_namespace_factory: NamespaceFactory) -> str:
    """Return a namespace, `tenant/name`, of this test only; deleted afterwards with its content."""
    return pulsar_namespace_factory()


@pytest.fixture
def pulsar_topic_factory(
    pulsar_broker_factory: BrokerFactory, pulsar_namespace_factory: NamespaceFactory
) -> TopicFactory:
    """Return an unused topic name, `pulsar_topic_factory("orders", partitions=3, broker=…)`.

    A partitioned topic is created; any other one is created by its first producer or consumer.
    """

    def topic(name: str = "topic", *, partitions: int = 0, broker: Reachable | None = None) -> str:
        where = broker or pulsar_broker_factory()
        full = f"persistent://{pulsar_namespace_factory(where)}/{name}-{uuid.uuid4().hex[:8]}"
        if partitions:
            with reason_only(), _tenancy(where) as tenancy:
                tenancy.create_partitioned_topic(full, partitions)
        return full

    return topic


@pytest.fixture
def pulsar_topic(pulsar_topic_factory: TopicFactory) -> str:
    """Return a topic name in this test's namespace."""
    return pulsar_topic_factory()


def _tenancy(broker: Reachable) -> Tenancy:
    from .tenancy import Tenancy  # noqa: PLC0415  # loaded on use

    return Tenancy(broker.admin_url, broker.access)


# -- clients ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def pulsar_admin(pulsar_broker: SharedBroker) -> Iterator[PulsarAdmin]:
    """Return the admin REST API of `pulsar_broker`, with the superuser's credentials if it needs any."""
    from pulsar_ext.admin import PulsarAdmin  # noqa: PLC0415  # loaded on use

    with PulsarAdmin(pulsar_broker.admin_url, **pulsar_broker.access.admin_options()) as admin:
        yield admin


@pytest.fixture
def pulsar_client_factory(
    pulsar_broker_factory: BrokerFactory,
    pulsar_namespace_factory: NamespaceFactory,  # noqa: ARG001  # deleted after clients are closed
) -> Iterator[ClientFactory[pulsar_ext.Client]]:
    """Create clients, `pulsar_client_factory(broker, service_url=proxy.service_url, io_threads=2)`, and close them."""
    import pulsar_ext  # noqa: PLC0415  # loaded on use

    yield from _client_factory(pulsar_ext.Client, pulsar_broker_factory)


@pytest.fixture
def pulsar_async_client_factory(
    pulsar_broker_factory: BrokerFactory,
    pulsar_namespace_factory: NamespaceFactory,  # noqa: ARG001  # deleted after clients are closed
) -> Iterator[ClientFactory[pulsar_ext.asyncio.Client]]:
    """Create asyncio clients for `async with`, on any event loop; open ones are closed afterwards."""
    import pulsar_ext.asyncio  # noqa: PLC0415  # loaded on use

    yield from _client_factory(pulsar_ext.asyncio.Client, pulsar_broker_factory)


def _client_factory(make: type[C], broker_factory: BrokerFactory) -> Iterator[ClientFactory[C]]:
    """Yield a factory of clients of a broker, with the options that they need, and close the clients afterwards."""
    import pulsar_ext  # noqa: PLC0415  # loaded on use
    from pulsar_ext.admin import PulsarAdmin  # noqa: PLC0415  # loaded on use

    with contextlib.ExitStack() as opened:

        def client(broker: Reachable | None = None, service_url: str | None = None, **options: Any) -> C:
            where = broker or broker_factory()
            options = {**where.client_options(pulsar_ext), **options}
            if "admin" not in options:
                options["admin"] = opened.enter_context(PulsarAdmin(where.admin_url, **where.access.admin_options()))
            made = make(service_url or where.service_url, **options)
            opened.callback(_close_quietly, made)
            return made

        yield client


def _close_quietly(client: pulsar_ext.Client | pulsar_ext.asyncio.Client) -> None:
    import pulsar_ext  # noqa: PLC0415  # loaded on use

    # The test may have closed it, or ended its broker.
    with contextlib.suppress(Exception):
        (client if isinstance(client, pulsar_ext.Client) else client.blocking).close()


@pytest.fixture
def pulsar_client(pulsar_client_factory: ClientFactory[pulsar_ext.Client]) -> pulsar_ext.Client:
    """Return a client connected to `pulsar_broker`; closed afterwards."""
    return pulsar_client_factory()


@pytest.fixture
def pulsar_fault_proxy(pulsar_broker_factory: BrokerFactory) -> Iterator[Callable[..., FaultProxy]]:
    """Start a proxy in front of a broker or a cluster, `pulsar_fault_proxy(broker)`, to break its connections."""
    with contextlib.ExitStack() as proxies:

        def proxy(broker: Reachable | None = None) -> FaultProxy:
            from .proxy import FaultProxy  # noqa: PLC0415  # loaded on use

            where = broker or pulsar_broker_factory()
            with reason_only():
                return proxies.enter_context(FaultProxy.to(where.service_url, where.detours))

        yield proxy


@pytest.fixture(scope="session")
def _pulsar_clusters(pytestconfig: pytest.Config) -> Iterator[Callable[[str | Profile], PulsarCluster]]:
    """Return this process's cluster of a profile; there is one at a time, to save memory."""
    run = pytestconfig.stash[RUN]
    backend, version = run.option("backend"), run.option("pulsar_version")
    with contextlib.ExitStack() as running:
        made: dict[str, PulsarCluster] = {}

        def cluster_of(profile: str | Profile) -> PulsarCluster:
            key = repr(profile)
            if key not in made:
                running.close()
                made.clear()
                with reason_only():
                    from .cluster import PulsarCluster  # noqa: PLC0415  # loaded on use

                    made[key] = running.enter_context(PulsarCluster(profile, backend=backend, version=version))
            return made[key]

        yield cluster_of


@pytest.fixture
def pulsar_cluster(
    request: pytest.FixtureRequest, _pulsar_clusters: Callable[[str | Profile], PulsarCluster]
) -> Iterator[PulsarCluster]:
    """Return a cluster of two brokers and two bookies, to kill, restart, roll and cut by name; healed afterwards.

    Its back end is that of `--pulsar-backend`. Its profile is that of the run, or
    `@pytest.mark.parametrize("pulsar_cluster", ["dedup"], indirect=True)`. Under xdist put the tests that use it in one
    group, or each worker starts a cluster: `@pytest.mark.xdist_group("cluster")`.
    """
    run = request.config.stash[RUN]
    cluster = _pulsar_clusters(getattr(request, "param", None) or run.option("profile") or "plain")
    yield cluster
    with reason_only():
        cluster.heal()
