"""Brokers of another version than the default one, in both back ends, and what is said of one that cannot be had."""

import contextlib

import pulsar
import pytest

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
def test_an_older_broker_in_a_process(tmp_path):
    """The version that is asked for runs, says so itself, and its data is not taken by another one."""
    with PulsarProcess(version=OLDER, data_dir=tmp_path) as broker:
        assert broker.version == OLDER
        assert f"Pulsar {OLDER}" in broker.describe()
        assert round_trip(broker) == b"x"
    with pytest.raises(BrokerStartError, match=rf"the data of Pulsar {OLDER}, not {PULSAR_VERSION}"):
        PulsarProcess(data_dir=tmp_path).start()


@pytest.mark.on_demand
@pytest.mark.usefixtures("containers")
def test_an_older_broker_in_a_container(monkeypatch):
    """The image's tag carries the version, here from the environment, and the broker in it is of that version."""
    monkeypatch.delenv("PULSAR_EXT_IMAGE", raising=False)
    monkeypatch.setenv("PULSAR_EXT_PULSAR_VERSION", OLDER)
    with PulsarContainer() as broker:
        assert broker.image.partition(":")[2].startswith(OLDER)
        assert broker.version == OLDER
        assert round_trip(broker) == b"x"


@pytest.mark.usefixtures("containers")
def test_an_image_of_another_version_is_told():
    """An image that is named and holds another version than was asked for is an error, and nothing is left running."""
    broker = PulsarContainer(image=choose_image(version=PULSAR_VERSION), version=OLDER)
    with pytest.raises(BrokerStartError, match=rf"version {OLDER} was asked for, .* says that it is {PULSAR_VERSION}"):
        broker.start()
    assert not broker.is_running()


@needs_process
def test_a_version_that_maven_does_not_serve(tmp_path, monkeypatch):
    """The error lists the versions that the configured repositories do serve, as Maven itself was told by them."""
    monkeypatch.setenv("PULSAR_EXT_CACHE", str(tmp_path))
    with pytest.raises(BrokerStartError, match=r"do not serve Pulsar 0\.0\.1; they serve") as caught:
        PulsarProcess(version="0.0.1").start()
    assert {PULSAR_VERSION, OLDER} <= set(caught.value.served)
