"""Choice of the image, and errors without one."""

import contextlib

import pytest
from docker.errors import DockerException

from pulsar_ext.errors import BrokerStartError
from pulsar_ext.testing import image

_NO_ENGINE = "unix:///nonexistent/engine.sock"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PULSAR_EXT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("PULSAR_EXT_IMAGE", raising=False)


def test_named_image_is_used_unchanged(monkeypatch):
    """The argument takes precedence over the environment, and that over all else, without a request to the engine."""
    monkeypatch.setenv("DOCKER_HOST", _NO_ENGINE)
    monkeypatch.setenv("PULSAR_EXT_IMAGE", "from-environment:1")

    assert image.choose_image("from-argument:1") == "from-argument:1"
    assert image.choose_image() == "from-environment:1"


def test_missing_engine_raises_with_remedies(monkeypatch):
    """Without an engine a `BrokerStartError` has the remedies instead of a stack trace."""
    monkeypatch.setenv("DOCKER_HOST", _NO_ENGINE)

    with pytest.raises(BrokerStartError, match=r"no Docker engine answers.*DOCKER_HOST.*broker process"):
        image.choose_image()


def test_missing_registry_is_cached(monkeypatch):
    """After a failed request the cached answer is negative, without a request to the engine or the network."""
    requests = []

    def connect(_timeout):
        requests.append("registry")
        raise DockerException("no such host")

    monkeypatch.setattr(image, "connect_engine", connect)
    for _ in range(2):
        assert image._is_pulled(None, "official:1", lambda _: None) is False
    assert requests == ["registry"]


def test_missing_image_raises_with_remedies(monkeypatch):
    """Without the official image and a registry, the error names the image and both remedies."""
    monkeypatch.setattr(image, "connect_engine", contextlib.ExitStack)
    monkeypatch.setattr(image, "is_present", lambda _engine, _image: False)
    monkeypatch.setattr(image, "_is_pulled", lambda *_: False)

    with pytest.raises(BrokerStartError, match=r"apachepulsar/pulsar:4\.0\.7.*PULSAR_EXT_IMAGE.*broker process"):
        image.choose_image(version="4.0.7")
