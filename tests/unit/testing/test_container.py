"""The two listeners of a broker on a Docker network."""

import pytest

from pulsar_ext.errors import InvalidUse
from pulsar_ext.testing.container import check_alias, check_settings, listener_settings


def test_each_side_is_told_its_own_address():
    """The network's clients are told the alias, the host's its port, and the broker itself stays on the network."""
    settings = listener_settings("pulsar", 6650, 40_123, tls=False)
    assert settings == {
        "advertisedListeners": "network:pulsar://pulsar:6650,host:pulsar://localhost:40123",
        "internalListenerName": "network",
        "bindAddresses": "host:pulsar://0.0.0.0:6651",
    }
    secure = listener_settings("pulsar", 6650, 40_123, tls=True)
    assert "pulsar://" not in "".join(secure.values())


@pytest.mark.parametrize("alias", ["pulsar", "pulsar-1", "a", "broker.test", "x1", "pulsar-ext-0123456789ab"])
def test_names_that_urls_can_hold(alias):
    """Host names pass."""
    assert check_alias(alias) == alias


@pytest.mark.parametrize("alias", ["", "my_pulsar", "-a", "a-", "a..b", "10.0.0.1", "a:1", "a,b", "ü"])
def test_names_that_urls_cannot_hold(alias):
    """Anything else is refused, and named."""
    with pytest.raises(InvalidUse, match=r"network alias .* cannot be a host name"):
        check_alias(alias)


def test_listeners_of_the_callers_own_are_refused():
    """Settings that describe listeners would contradict the network's; others pass."""
    check_settings({"maxMessageSize": 1})
    with pytest.raises(InvalidUse, match="sets bindAddresses itself"):
        check_settings({"bindAddresses": "x"})
