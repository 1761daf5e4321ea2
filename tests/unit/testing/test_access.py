"""Leases of detours to the brokers of a cluster."""

import pytest

from pulsar_ext.errors import BrokerStartError, InvalidUse
from pulsar_ext.testing import FaultProxy
from pulsar_ext.testing.access import Detour, Route, lease, parse_service_url
from pulsar_ext.testing.ports import free_port


def test_each_detour_has_one_holder():
    """Each lease returns a different detour until none is free, and a returned detour can be leased again."""
    first, second = [Detour(free_port(), ()) for _ in range(2)]
    detour, held = lease([first, second])
    other, held_too = lease([first, second])
    with held_too:
        assert (detour, other) == (first, second)
        with pytest.raises(BrokerStartError, match="all 2 detours"):
            lease([first, second])
        held.close()
        again, held = lease([first, second])
        held.close()
        assert again == first


def test_proxy_holds_its_detour_until_it_is_closed():
    """The proxy's URL has every broker, and its detour is free after the close."""
    routes = tuple(Route(free_port(), "127.0.0.1", free_port()) for _ in range(2))
    detours = [Detour(free_port(), routes, "pulsar+ssl")]
    with FaultProxy.to("pulsar://one:1,other:2", detours) as proxy:
        assert proxy.service_url == f"pulsar+ssl://localhost:{routes[0].port},localhost:{routes[1].port}"
        with pytest.raises(BrokerStartError, match="all 1 detours"):
            FaultProxy.to("pulsar://one:1,other:2", detours)
    lease(detours)[1].close()


def test_several_brokers_need_a_detour():
    """A URL of one broker is parsed; one of several raises, because look-ups would bypass the proxy."""
    assert parse_service_url("pulsar+ssl://localhost:7") == ("pulsar+ssl", "localhost", 7)
    with pytest.raises(InvalidUse, match="bypass a proxy"):
        parse_service_url("pulsar://localhost:7,localhost:8")
