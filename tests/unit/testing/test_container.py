"""Listeners of a broker on a Docker network."""

import pytest

from pulsar_ext.errors import InvalidUse
from pulsar_ext.testing.container import check_alias, check_settings, listener_settings


def test_each_listener_advertises_its_address():
    """Clients of the network get the alias, those of the host its port, and the broker itself uses the network."""
    settings = listener_settings("pulsar", 6650, 40_123, tls=False)
    assert settings == {
        "advertisedListeners": "network:pulsar://pulsar:6650,host:pulsar://localhost:40123",
        "internalListenerName": "network",
        "bindAddresses": "host:pulsar://0.0.0.0:6651",
    }
    secure = listener_settings("pulsar", 6650, 40_123, tls=True)
    assert "pulsar://" not in "".join(secure.values())


@pytest.mark.parametrize("alias", ["pulsar", "pulsar-1", "a", "broker.test", "x1", "pulsar-ext-0123456789ab"])
def test_host_names_are_valid_aliases(alias):
    """Host names are valid aliases."""
    assert check_alias(alias) == alias


@pytest.mark.parametrize("alias", ["", "my_pulsar", "-a", "a-", "a..b", "10.0.0.1", "a:1", "a,b", "ü"])
def test_other_names_are_not_valid_aliases(alias):
    """Any other alias raises an error that names it."""
    with pytest.raises(InvalidUse, match=r"network alias .* is not a host name"):
        check_alias(alias)


def test_listener_settings_of_the_caller_raise():
    """Settings of listeners raise, because the network has its own; other settings are valid."""
    check_settings({"maxMessageSize": 1})
    with pytest.raises(InvalidUse, match="sets bindAddresses: omit"):
        check_settings({"bindAddresses": "x"})
