"""Brokers of other versions than the default one, in both back ends and as clusters, and errors for a missing one."""

import contextlib

import pulsar
import pytest
from containers import usable_image

from pulsar_ext.errors import BrokerStartError
from pulsar_ext.testing import PULSAR_VERSION, PulsarCluster, PulsarContainer, PulsarProcess
from pulsar_ext.testing.backend import process_problem
from pulsar_ext.testing.image import choose_image
from pulsar_ext.testing.readiness import reported_version

OLDER = "4.0.1"
"""A version without a list of its jars; fetching them takes half a minute, once."""

NEWER = "5.0.1"
"""A version with a list, which needs Java 21."""


def needs_process(version):
    """Return a version as a parameter, skipped if no process of it can run."""
    problem = process_problem(version)
    return pytest.param(
        version, marks=pytest.mark.skipif(problem is not None, reason=f"no broker process here: {problem}")
    )


def round_trip(broker):
    logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    client = pulsar.Client(broker.service_url, logger=logger, **broker.client_options(pulsar))
    with contextlib.closing(client):
        consumer = client.subscribe("versions", "s")
        client.create_producer("versions").send(b"x")
        return consumer.receive(20_000).data()


@pytest.mark.on_demand
@pytest.mark.parametrize("version", [needs_process(OLDER), needs_process(NEWER)])
def test_other_broker_in_a_process(tmp_path, version):
    """A broker reports the requested version, and another version rejects its data."""
    with PulsarProcess(version=version, data_dir=tmp_path) as broker:
        assert broker.version == version
        assert f"Pulsar {version}" in broker.describe()
        assert round_trip(broker) == b"x"
    with pytest.raises(BrokerStartError, match=rf"the data of Pulsar {version}, not of {PULSAR_VERSION}"):
        PulsarProcess(data_dir=tmp_path).start()


@pytest.mark.on_demand
@pytest.mark.parametrize("version", [needs_process(NEWER)])
def test_newer_cluster_of_processes(version):
    """All brokers of a cluster report the requested version, and a message passes."""
    with PulsarCluster(version=version) as cluster:
        assert {reported_version(url, cluster.access) for url in cluster.admin_urls} == {version}
        assert round_trip(cluster) == b"x"


@pytest.mark.on_demand
@pytest.mark.usefixtures("containers")
def test_newer_cluster_of_containers(monkeypatch):
    """All brokers of a cluster in containers report the requested version, and a message passes."""
    monkeypatch.setenv("PULSAR_EXT_IMAGE", built_image(monkeypatch, NEWER))
    with PulsarCluster(backend="docker", version=NEWER) as cluster:
        assert {reported_version(url, cluster.access) for url in cluster.admin_urls} == {NEWER}
        assert round_trip(cluster) == b"x"


def built_image(monkeypatch, version):
    """Return an image of a version, whatever image the environment names."""
    monkeypatch.delenv("PULSAR_EXT_IMAGE", raising=False)
    return usable_image(version)


@pytest.mark.on_demand
@pytest.mark.usefixtures("containers")
@pytest.mark.parametrize("version", [OLDER, NEWER])
def test_other_broker_in_a_container(monkeypatch, version):
    """The image's tag has the version of the environment, and its broker reports it."""
    monkeypatch.setenv("PULSAR_EXT_IMAGE", built_image(monkeypatch, version))
    monkeypatch.setenv("PULSAR_EXT_PULSAR_VERSION", version)
    with PulsarContainer() as broker:
        assert broker.image.partition(":")[2].startswith(version)
        assert broker.version == version
        assert round_trip(broker) == b"x"


@pytest.mark.usefixtures("containers")
def test_image_of_another_version_is_an_error():
    """A named image with another than the requested version is an error, and nothing is left running."""
    broker = PulsarContainer(image=choose_image(version=PULSAR_VERSION), version=OLDER)
    with pytest.raises(BrokerStartError, match=rf"version {OLDER} was requested, .* reports {PULSAR_VERSION}"):
        broker.start()
    assert not broker.is_running()


@pytest.mark.skipif(process_problem() is not None, reason=f"no broker process here: {process_problem()}")
def test_missing_version_lists_the_available_ones(tmp_path, monkeypatch):
    """The error lists the versions of the configured repositories."""
    monkeypatch.setenv("PULSAR_EXT_CACHE", str(tmp_path))
    with pytest.raises(BrokerStartError, match=r"do not have Pulsar 0\.0\.1; they have") as caught:
        PulsarProcess(version="0.0.1").start()
    assert {PULSAR_VERSION, OLDER} <= set(caught.value.served)
