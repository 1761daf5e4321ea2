"""Brokers of another version than the default one, in both back ends, and errors for a missing version."""

import contextlib

import pulsar
import pytest
from containers import usable_image

from pulsar_ext.errors import BrokerStartError
from pulsar_ext.testing import PULSAR_VERSION, PulsarContainer, PulsarProcess
from pulsar_ext.testing.backend import process_problem
from pulsar_ext.testing.image import choose_image

OLDER = "4.0.7"
"""A version with other jars than the default one; fetching them takes half a minute, once."""

needs_process = pytest.mark.skipif(
    process_problem(OLDER) is not None, reason=f"no broker process here: {process_problem(OLDER)}"
)


def round_trip(broker):
    logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    client = pulsar.Client(broker.service_url, logger=logger, **broker.client_options(pulsar))
    with contextlib.closing(client):
        consumer = client.subscribe("versions", "s")
        client.create_producer("versions").send(b"x")
        return consumer.receive(20_000).data()


@pytest.mark.on_demand
@needs_process
def test_older_broker_in_a_process(tmp_path):
    """A broker reports the requested version, and another version rejects its data."""
    with PulsarProcess(version=OLDER, data_dir=tmp_path) as broker:
        assert broker.version == OLDER
        assert f"Pulsar {OLDER}" in broker.describe()
        assert round_trip(broker) == b"x"
    with pytest.raises(BrokerStartError, match=rf"the data of Pulsar {OLDER}, not of {PULSAR_VERSION}"):
        PulsarProcess(data_dir=tmp_path).start()


@pytest.mark.on_demand
@pytest.mark.usefixtures("containers")
def test_older_broker_in_a_container(monkeypatch):
    """The image's tag has the version of the environment, and its broker reports it."""
    monkeypatch.delenv("PULSAR_EXT_IMAGE", raising=False)
    monkeypatch.setenv("PULSAR_EXT_IMAGE", usable_image(OLDER))
    monkeypatch.setenv("PULSAR_EXT_PULSAR_VERSION", OLDER)
    with PulsarContainer() as broker:
        assert broker.image.partition(":")[2].startswith(OLDER)
        assert broker.version == OLDER
        assert round_trip(broker) == b"x"


@pytest.mark.usefixtures("containers")
def test_image_of_another_version_is_an_error():
    """A named image with another than the requested version is an error, and nothing is left running."""
    broker = PulsarContainer(image=choose_image(version=PULSAR_VERSION), version=OLDER)
    with pytest.raises(BrokerStartError, match=rf"version {OLDER} was requested, .* reports {PULSAR_VERSION}"):
        broker.start()
    assert not broker.is_running()


@needs_process
def test_missing_version_lists_the_available_ones(tmp_path, monkeypatch):
    """The error lists the versions of the configured repositories."""
    monkeypatch.setenv("PULSAR_EXT_CACHE", str(tmp_path))
    with pytest.raises(BrokerStartError, match=r"do not have Pulsar 0\.0\.1; they have") as caught:
        PulsarProcess(version="0.0.1").start()
    assert {PULSAR_VERSION, OLDER} <= set(caught.value.served)
